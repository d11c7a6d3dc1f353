"""Scenarios in which nodes announce that they are about to go away, or decide the ranks of pods."""

from collections.abc import Mapping

from crds.api_resources import PODS
from kube.api import Manifest
from tests.faults.api import ApiClient
from tests.faults.scenarios import people
from tests.faults.scenarios.resizes import BOTH, DONE, elastic, quota, want
from tests.faults.scenarios.scenario import (
    FIRST_NODE,
    NAMESPACE,
    ONE,
    SECOND_NODE,
    Condition,
    Scenario,
    Step,
    master_fails,
    pair,
    task,
)

NODES = (FIRST_NODE, SECOND_NODE)
_IN_RACK = {"schedulingPolicy": {"topology": {"required": "rack"}}}
_FAILS = task(restartPolicy="OnFailure")


def _last_elsewhere(task_type: str, index: int, open_nodes: list[str]) -> str:
    """Return the second node for workers 0 and 3 of a job while that node is open. All other pods get the first open
    node.
    """
    node = SECOND_NODE if task_type == "worker" and index in (0, 3) else FIRST_NODE
    return node if node in open_nodes else next(iter(open_nodes), "")


def _fourth_elsewhere(task_type: str, index: int, open_nodes: list[str]) -> str:
    return _last_elsewhere(task_type, index if index == 3 else 1, open_nodes)


def _has_left(field: str) -> Condition:
    """Return the condition that a pod of the job has left its node, or that no pod was on the node."""

    def holds(jobs: Mapping[str, Manifest]) -> bool:
        status = (jobs.get("one") or {}).get("status") or {}
        return bool(status.get(field)) or people.tampered("one")(jobs)

    return holds


def _lose(node: Step) -> Step:
    """Return the step that changes the second node; the step marks the job if no pod is on this node."""

    def step(cluster: ApiClient) -> None:
        node(cluster)
        if not any(pod["spec"].get("nodeName") == SECOND_NODE for pod in cluster.list(PODS, NAMESPACE).items):
            people.tamper("one")(cluster)

    return step


def _lacks_rack(jobs: Mapping[str, Manifest]) -> bool:
    """Return whether a job that requires a rack is admitted to none."""
    found = [(job.get("status") or {}).get("admission") for job in jobs.values()]
    return any(admission is not None and not admission.get("domain") for admission in found)


def _is_in_second_rack(jobs: Mapping[str, Manifest]) -> bool:
    admission = ((jobs.get("one") or {}).get("status") or {}).get("admission") or {}
    return admission.get("domain") == f"rack={SECOND_NODE[::-1]}"


def _whole(node: str) -> Manifest:
    """Return a job of one pod that has to run on a node, and takes most of it."""
    expression = {"key": "rack", "operator": "In", "values": [node[::-1]]}
    required = {
        "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    }
    container = {"name": "torch", "image": "torch:1", "resources": {"requests": {"cpu": "2"}}}
    pod = {"spec": {"containers": [container], "affinity": {"nodeAffinity": required}}}
    return {"torchTaskSpecs": {"Master": {"numTasks": 1, "template": pod}}}


def _share_a_node(jobs: Mapping[str, Manifest]) -> bool:
    """Return whether two of the jobs hold room that have to run on one node, which holds one of them."""
    found = {name: job.get("status") or {} for name, job in jobs.items()}
    holding = {name for name, each in found.items() if each.get("admission") and each.get("phase") != "Succeeded"}
    return holding >= {"one", "two"} or holding >= {"three", "four"}


def _share_the_second_node(jobs: Mapping[str, Manifest]) -> bool:
    """Return whether two jobs hold room of a node that holds one of them, which a closed node does not add to."""
    found = (jobs.get(name, {}).get("status") or {} for name in ("two", "three"))
    return all(each.get("admission") and each.get("phase") != "Succeeded" for each in found)


def _runs_on_the_second_node(jobs: Mapping[str, Manifest]) -> bool:
    """Return whether one of the jobs runs, or has run, that have to run on the second node."""
    return any(people.phase(name, "Running", "Succeeded")(jobs) for name in ("two", "three"))


def _may_open_the_first_node(jobs: Mapping[str, Manifest]) -> bool:
    """Return whether a job runs on the second node, or the first one was closed before the pod came that needs it."""
    return _runs_on_the_second_node(jobs) or people.phase("one", "Admitted")(jobs)


def _is_smaller(jobs: Mapping[str, Manifest]) -> bool:
    """Return whether the job has given up a worker, or no worker was on the node."""
    return people.workers("one", 3, scaling=True)(jobs) or people.tampered("one")(jobs)


SCENARIOS = (
    Scenario(
        name="placed",
        queues={"a": {}, "b": {"weight": 2}},
        jobs={
            "one": {},
            "two": {"queue": "b", "torchTaskSpecs": {"Master": task(), "Worker": task(3, dependsOn=[])}},
            "three": {"queue": "b", "cleanPodPolicy": "All"},
            "four": {},
        },
        ends=dict.fromkeys(("one", "two", "three", "four"), "Succeeded"),
        pool="nodes",
        nodes=NODES,
        place=_last_elsewhere,
        allocatable={"cpu": "3", "pods": "9"},
    ),
    Scenario(
        name="whole",  # each node holds one job, and the sum of what is free would hold three
        queues={"a": {}, "b": {"weight": 2}},
        jobs={
            "one": _whole(FIRST_NODE),
            "two": {"queue": "b", **_whole(FIRST_NODE)},
            "three": _whole(SECOND_NODE),
            "four": {"queue": "b", **_whole(SECOND_NODE)},
        },
        ends=dict.fromkeys(("one", "two", "three", "four"), "Succeeded"),
        steps=(
            (people.at_once, people.close(SECOND_NODE)),
            (people.phase("one", "Running", "Succeeded"), people.close(SECOND_NODE, closed=False)),
        ),
        never=_share_a_node,
        pool="nodes",
        nodes=NODES,
        allocatable={"cpu": "3", "pods": "9"},
    ),
    Scenario(
        name="withheld",  # a job stays on a closed node, and what it holds there is not taken from the other node
        queues={"a": {}, "b": {"weight": 2}},
        jobs={
            "one": _whole(FIRST_NODE),
            "two": _whole(SECOND_NODE),
            "three": {"queue": "b", **_whole(SECOND_NODE)},
        },
        ends=dict.fromkeys(("one", "two", "three"), "Succeeded"),
        steps=(
            (people.at_once, people.close(SECOND_NODE)),
            (people.phase("one", "Running"), people.close(FIRST_NODE)),
            (people.at_once, people.close(SECOND_NODE, closed=False)),
            (_may_open_the_first_node, people.close(FIRST_NODE, closed=False)),
        ),
        until=lambda jobs: people.phase("one", "Running", "Succeeded")(jobs) and _runs_on_the_second_node(jobs),
        never=_share_the_second_node,
        pool="nodes",
        nodes=NODES,
        allocatable={"cpu": "3", "pods": "9"},
    ),
    Scenario(
        name="racks",  # each of the two nodes is a rack, which holds one of the jobs
        queues={"a": {}, "b": {"weight": 2}},
        jobs={
            "one": _IN_RACK,
            "two": {"queue": "b", **_IN_RACK},
            "three": {"queue": "b", **_IN_RACK},
        },
        ends=dict.fromkeys(("one", "two", "three"), "Succeeded"),
        never=_lacks_rack,
        pool="nodes",
        nodes=NODES,
        allocatable={"cpu": "2", "pods": "9"},
        settings={"topology_labels": "rack"},
    ),
    Scenario(
        name="rackcloses",  # the rack of a running job is about to go away, and the other rack opens later
        queues=ONE,
        jobs={"one": _IN_RACK},
        ends=DONE,
        steps=(
            (people.phase("one", "Running"), people.close(SECOND_NODE)),
            (people.at_once, people.taint(FIRST_NODE)),
            (people.phase("one", "Queued", ""), people.close(SECOND_NODE, closed=False)),
        ),
        until=_is_in_second_rack,
        never=_lacks_rack,
        pool="nodes",
        nodes=NODES,
        allocatable={"cpu": "2", "pods": "9"},
        settings={"topology_labels": "rack"},
        patience=30.0,
    ),
    Scenario(
        name="spot",
        queues=ONE,
        jobs={"one": elastic(4)},
        ends=DONE,
        steps=((people.workers("one", 4), _lose(people.taint(SECOND_NODE))),),
        until=_has_left("trainingRestarts"),
        sizes={"one": 4},
        nodes=NODES,
        place=_fourth_elsewhere,
        bad_node=SECOND_NODE,
    ),
    Scenario(
        name="spotstatic",
        queues=ONE,
        jobs={"one": {"torchTaskSpecs": pair(restartPolicy="OnFailure"), "backoffLimit": 0}},
        ends=DONE,
        steps=((people.phase("one", "Running"), _lose(people.close(SECOND_NODE))),),
        until=_has_left("restartGeneration"),
        nodes=NODES,
        place=_last_elsewhere,
        bad_node=SECOND_NODE,
        settings={"in_place": "local"},
    ),
    Scenario(
        name="spotfull",
        queues={"a": quota(5)},
        jobs={"one": elastic(4, joinTimeoutSeconds=10), "two": elastic(1)},
        ends=BOTH,
        steps=(
            (people.workers("one", 4), _lose(people.taint(SECOND_NODE))),
            (_is_smaller, want("one", 3)),
        ),
        sizes={"one": 3, "two": 1},
        nodes=NODES,
        place=_fourth_elsewhere,
        bad_node=SECOND_NODE,
        stalls=lambda task_type, index, before: task_type == "worker" and index == 3 and before > 0,
        settings={"admission_backoff": 10},
        patience=40.0,
    ),
    Scenario(
        name="ranked",
        queues=ONE,
        jobs={
            "one": {
                "torchTaskSpecs": {"Master": _FAILS, "Worker": _FAILS},
                "backoffLimit": 2,
                "successPolicy": "Master",
            }
        },
        ends=DONE,
        restarts={"one": 1},
        fate=master_fails(137, 1),
        nodes=NODES,
        place=_last_elsewhere,
        settings={"topology_labels": "rack"},
    ),
    Scenario(
        name="rankedscale",
        queues=ONE,
        jobs={"one": elastic(2, mode="InPlaceRestart")},
        ends=DONE,
        steps=((people.workers("one", 2), want("one", 4)), (people.workers("one", 4), want("one", 3))),
        sizes={"one": 3},
        gentle=True,
        nodes=NODES,
        place=_last_elsewhere,
        settings={"topology_labels": "rack", "in_place": "local"},
    ),
)
