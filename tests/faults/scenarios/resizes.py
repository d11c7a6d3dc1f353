"""Scenarios in which jobs grow and shrink while they run."""

from collections.abc import Mapping
from typing import Any

from kube.api import Manifest
from tests.faults.api import ApiClient
from tests.faults.scenarios import people
from tests.faults.scenarios.gangs import VOLCANO
from tests.faults.scenarios.scenario import FIRST_NODE, ONE, SECOND_NODE, Scenario, Step, task

ALL = {"cleanPodPolicy": "All"}
DONE = {"one": "Succeeded"}
BOTH = {"one": "Succeeded", "two": "Succeeded"}


def elastic(count: int, least: int = 1, most: int = 4, **policy: Any) -> Manifest:
    """Return the spec of an elastic job of `count` workers, each with 1 CPU, and a store with a twentieth of a CPU."""
    bounds = {"numMinReplicas": least, "numMaxReplicas": most, **policy}
    return {"torchTaskSpecs": {"Worker": task(count)}, "torchElasticPolicy": bounds, **ALL}


def want(job: str, count: int) -> Step:
    """Return the step in which the owner wants another number of workers."""
    return people.change(job, torchTaskSpecs={"Worker": {"numTasks": count}})


def quota(cpus: int) -> Manifest:
    return {"quota": {"cpu": str(cpus)}}


def _has_more_than_two(jobs: Mapping[str, Manifest]) -> bool:
    return ((jobs["one"].get("status") or {}).get("admission") or {}).get("workers", 0) > 2


def _has_grown_before_the_other_began(jobs: Mapping[str, Manifest]) -> bool:
    """Return whether the younger request of one job was granted before the older request of the other job."""
    return _has_more_than_two(jobs) and not (jobs["two"].get("status") or {}).get("attempt")


def _last_worker_elsewhere(task_type: str, index: int, ready: list[str]) -> str:
    node = SECOND_NODE if task_type == "worker" and index == 3 else FIRST_NODE
    return node if node in ready else next(iter(ready), "")


def _shrink_and_lose_the_node(cluster: ApiClient) -> None:
    """Want one worker less, and lose the node of the last worker before this worker is removed."""
    want("one", 3)(cluster)
    people.silence(SECOND_NODE)(cluster)


SCENARIOS = (
    Scenario(
        name="grow",
        queues=ONE,
        jobs={"one": elastic(2)},
        ends=DONE,
        steps=((people.workers("one", 2), want("one", 4)),),
        sizes={"one": 4},
        gentle=True,
    ),
    Scenario(
        name="growwait",
        queues={"a": quota(3)},
        jobs={"one": elastic(2)},
        ends=DONE,
        steps=(
            (people.workers("one", 2), want("one", 4)),
            (people.workers("one", 2, scaling=True), people.queue_change("a", **quota(5))),
        ),
        sizes={"one": 4},
        gentle=True,
    ),
    Scenario(
        name="growpart",
        queues={"a": quota(4)},
        jobs={"one": elastic(2)},
        ends=DONE,
        steps=(
            (people.workers("one", 2), want("one", 4)),
            (people.workers("one", 3, scaling=True), people.queue_change("a", **quota(5))),
        ),
        sizes={"one": 4},
        gentle=True,
    ),
    Scenario(
        name="growback",
        queues={"a": quota(4)},
        jobs={"one": elastic(2)},
        ends=DONE,
        steps=(
            (people.workers("one", 2), want("one", 4)),
            (people.scaling("one", 4), want("one", 2)),
            (people.workers("one", 2), want("one", 4)),
            (_has_more_than_two, want("one", 2)),
        ),
        sizes={"one": 2},
        gentle=True,
    ),
    Scenario(
        name="shrink",
        queues={"a": quota(5)},
        jobs={"one": elastic(4), "two": elastic(2, 2)},
        ends=BOTH,
        steps=((people.workers("one", 4), want("one", 2)),),
        sizes={"one": 2, "two": 2},
        gentle=True,
    ),
    Scenario(
        name="shrinkdead",
        queues={"a": quota(5)},
        jobs={"one": elastic(4), "two": elastic(1)},
        ends=BOTH,
        steps=((people.workers("one", 4), _shrink_and_lose_the_node),),
        sizes={"one": 3, "two": 1},
        nodes=(FIRST_NODE, SECOND_NODE),
        place=_last_worker_elsewhere,
        bad_node=SECOND_NODE,
        settings={"dead_node_grace": 5},
        patience=20.0,
    ),
    Scenario(
        name="joinlate",
        queues=ONE,
        jobs={"one": elastic(2, joinTimeoutSeconds=10)},
        ends=DONE,
        steps=((people.workers("one", 2), want("one", 4)),),
        stalls=lambda task_type, index, before: task_type == "worker" and index == 3 and before == 0,
        sizes={"one": 4},
        gentle=True,
        settings={"admission_backoff": 10},
        patience=40.0,
    ),
    Scenario(
        name="growsuspend",
        queues={"a": quota(4)},
        jobs={"one": elastic(2)},
        ends=DONE,
        steps=(
            (people.workers("one", 2), want("one", 3)),
            (people.scaling("one", 3), people.change("one", suspend=True)),
            (people.phase("one", "Suspended"), people.change("one", suspend=False)),
        ),
        sizes={"one": 3},
    ),
    Scenario(
        name="growdrain",
        queues={"a": quota(4)},
        jobs={"one": elastic(2)},
        ends=DONE,
        steps=(
            (people.workers("one", 2), want("one", 3)),
            (people.scaling("one", 3), people.queue_change("a", stopPolicy="HoldAndDrain")),
            (people.phase("one", "Queued"), people.queue_change("a", stopPolicy="None")),
        ),
        sizes={"one": 3},
    ),
    Scenario(
        name="growdelete",
        queues={"a": quota(5)},
        jobs={"one": elastic(2), "two": elastic(3, 3)},
        ends={"two": "Succeeded"},
        steps=(
            (people.workers("one", 2), want("one", 4)),
            (people.scaling("one", 4), people.delete("one")),
        ),
        sizes={"two": 3},
    ),
    Scenario(
        name="growend",
        queues=ONE,
        jobs={"one": elastic(2)},
        ends=DONE,
        steps=((people.workers("one", 2), want("one", 4)),),
        until=people.wants("one", 4),
        gentle=True,
    ),
    Scenario(
        name="growtwo",
        queues={"a": quota(7)},
        jobs={"one": elastic(2), "two": elastic(2)},
        ends=BOTH,
        steps=((people.workers("one", 2), want("one", 4)), (people.workers("two", 2), want("two", 4))),
        sizes={"one": 4, "two": 4},
        gentle=True,
    ),
    Scenario(
        name="growlast",
        queues={"a": quota(6)},
        jobs={
            "base": {"torchTaskSpecs": {"Worker": task(3)}, **ALL},
            "one": elastic(2, 2, replicaStep=2),
            "two": elastic(3, 3),
        },
        ends={"base": "Succeeded", **BOTH},
        steps=((people.phase("two", "Queued"), want("one", 4)),),
        sizes={"one": 4, "two": 3},
        never=_has_grown_before_the_other_began,
        gentle=True,
        patience=10.0,
    ),
    Scenario(
        name="range",
        queues={"a": quota(3)},
        jobs={"one": {"torchTaskSpecs": {"Worker": task(4)}, "minMembers": {"Worker": 2}, **ALL}},
        ends=DONE,
        steps=((people.workers("one", 3, scaling=True), people.queue_change("a", **quota(4))),),
        sizes={"one": 4},
        gentle=True,
    ),
    Scenario(
        name="inplacescale",
        queues=ONE,
        jobs={"one": elastic(2, mode="InPlaceRestart")},
        ends=DONE,
        steps=((people.workers("one", 2), want("one", 3)), (people.workers("one", 3), want("one", 2))),
        sizes={"one": 2},
        gentle=True,
        settings={"in_place": "local"},
    ),
    Scenario(
        name="replacescale",
        queues=ONE,
        jobs={"one": elastic(3, mode="InPlaceRestart")},
        ends=DONE,
        steps=((people.workers("one", 3), want("one", 2)), (people.workers("one", 2), want("one", 3))),
        sizes={"one": 3},
    ),
    Scenario(
        name="growgang",
        queues=ONE,
        jobs={"one": {**elastic(3), "torchElasticPolicy": {"numMaxReplicas": 4}, **VOLCANO}},
        ends=DONE,
        steps=((people.workers("one", 3), want("one", 2)), (people.workers("one", 2), want("one", 4))),
        sizes={"one": 4},
        gentle=True,
    ),
    Scenario(
        name="storelost",
        queues=ONE,
        jobs={"one": elastic(2)},
        ends=DONE,
        disruptions={"one": 1},
        steps=((people.phase("one", "Running"), people.evict("one", "one-rendezvous-0")),),
        until=people.disrupted("one"),
        sizes={"one": 2},
    ),
)
