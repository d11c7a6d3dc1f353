"""Scenarios in which jobs grow and shrink while they run."""

from typing import Any

from kube.api import Manifest
from tests.faults.scenarios import people
from tests.faults.scenarios.scenario import ONE, Scenario, Step, task

ALL = {"cleanPodPolicy": "All"}
DONE = {"one": "Succeeded"}


def elastic(count: int, least: int = 1, most: int = 4, **policy: Any) -> Manifest:
    """Return the spec of an elastic job of `count` workers, each with 1 CPU, and a store with a twentieth of one."""
    bounds = {"numMinReplicas": least, "numMaxReplicas": most, **policy}
    return {"torchTaskSpecs": {"Worker": task(count)}, "torchElasticPolicy": bounds, **ALL}


def want(job: str, count: int) -> Step:
    """Return the step in which the owner wants another number of workers."""
    return people.change(job, torchTaskSpecs={"Worker": {"numTasks": count}})


def quota(cpus: int) -> Manifest:
    return {"quota": {"cpu": str(cpus)}}


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
            (people.scaling("one"), want("one", 2)),
            (people.workers("one", 2), want("one", 4)),
            (people.joining("one"), want("one", 2)),
        ),
        sizes={"one": 2},
        gentle=True,
    ),
    Scenario(
        name="shrink",
        queues={"a": quota(5)},
        jobs={"one": elastic(4), "two": elastic(2, 2)},
        ends={"one": "Succeeded", "two": "Succeeded"},
        steps=((people.workers("one", 4), want("one", 2)),),
        sizes={"one": 2, "two": 2},
        gentle=True,
    ),
)
