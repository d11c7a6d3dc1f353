"""Scenarios in which pods fail, are lost, or are restarted."""

from collections.abc import Mapping
from typing import Any

from kube.api import Manifest
from reconcilers.views.node_view import RESTARTS_ALL
from tests.faults.node import OUT_OF_MEMORY, PREEMPTED
from tests.faults.scenarios import people
from tests.faults.scenarios.scenario import FIRST_NODE, ONE, SECOND_NODE, Scenario, fails, master_fails, pair, task

MEMORY = 2 * 2**20
"""The memory that each pod of a growing job requests at first, in bytes."""


def _template(memory: int) -> Manifest:
    resources = {"requests": {"cpu": "1", "memory": str(memory)}}
    return {"spec": {"containers": [{"name": "torch", "image": "torch:1", "resources": resources}]}}


def _growing(**fields: Any) -> Manifest:
    """Return a master and a worker. The memory of the worker may grow, by a half each time, to twice its amount."""
    growth = {"memoryGrowth": {"max": str(2 * MEMORY)}, "restartPolicy": "OnFailure"}
    tasks = pair(template=_template(MEMORY))
    return {"torchTaskSpecs": {**tasks, "Worker": tasks["Worker"] | growth}, "backoffLimit": 6, **fields}


def _is_there(jobs: Mapping[str, Manifest]) -> bool:
    return "two" not in jobs or people.phase("two", "Running")(jobs)


def _waits_or_needs_not(jobs: Mapping[str, Manifest]) -> bool:
    return people.said("one", "NoRoomForMemory")(jobs) or people.phase("one", "Succeeded")(jobs)


def _have_lost_a_pod(jobs: Mapping[str, Manifest]) -> bool:
    return people.tampered("one")(jobs) and people.tampered("two")(jobs)


RESTARTS = {"torchTaskSpecs": pair(restartPolicy="OnFailure")}
UNDER_MASTER = {"successPolicy": "Master"}
"""The policy of jobs whose other pods run until the master has ended."""

SCENARIOS = (
    Scenario(
        name="restart",
        queues=ONE,
        jobs={"one": {**RESTARTS, **UNDER_MASTER, "backoffLimit": 2}},
        ends={"one": "Succeeded"},
        restarts={"one": 1},
        fate=master_fails(137, 1),
    ),
    Scenario(
        name="replace",
        queues=ONE,
        jobs={"one": {**RESTARTS, **UNDER_MASTER, "backoffLimit": 3, "restartScope": "Task"}},
        ends={"one": "Succeeded"},
        restarts={"one": 1},
        fate=master_fails(137, 1),
    ),
    Scenario(
        name="backoff",
        queues=ONE,
        jobs={"one": {**RESTARTS, **UNDER_MASTER, "backoffLimit": 3}},
        ends={"one": "Succeeded"},
        restarts={"one": 3},
        fate=master_fails(137, 3),
        patience=40.0,
    ),
    Scenario(
        name="single",
        queues=ONE,
        jobs={"one": {**RESTARTS, **UNDER_MASTER, "backoffLimit": 3, "restartScope": "Task"}},
        ends={"one": "Succeeded"},
        restarts={"one": 3},
        fate=master_fails(137, 3),
        patience=40.0,
    ),
    Scenario(
        name="lastrank",
        queues=ONE,
        jobs={"one": {**RESTARTS, "backoffLimit": 3, "restartScope": "Task"}},
        ends={"one": "Succeeded"},
        restarts={"one": 1},
        fate=lambda task_type, _, failed: 137 if task_type == "master" and failed < 1 else 0,
    ),
    Scenario(
        name="giveup",
        queues=ONE,
        jobs={"one": {**RESTARTS, "backoffLimit": 1}, "two": {"backoffLimit": 0}},
        ends={"one": "Failed", "two": "Failed"},
        restarts={"one": 1},
        fate=master_fails(137, 9),
    ),
    Scenario(
        name="disrupted",
        queues=ONE,
        jobs={"one": {**RESTARTS, "backoffLimit": 0}},
        ends={"one": "Succeeded"},
        disruptions={"one": 2},
        fate=fails("worker", "Evicted", 2),
    ),
    Scenario(
        name="preempted",
        queues=ONE,
        jobs={"one": {**RESTARTS, "backoffLimit": 0}},
        ends={"one": "Succeeded"},
        disruptions={"one": 2},
        fate=lambda task_type, _, failed: 0 if task_type == "worker" or failed == 2 else PREEMPTED,
    ),
    Scenario(
        name="inplace",
        queues=ONE,
        jobs={"one": {**UNDER_MASTER, "torchTaskSpecs": {**pair(restartPolicy="OnFailure"), "Board": task()}}},
        ends={"one": "Succeeded"},
        restarts={"one": 1},
        fate=fails("worker", 137, 1),
        settings={"in_place": "local"},
    ),
    Scenario(
        name="agent",
        queues=ONE,
        jobs={"one": {**UNDER_MASTER, "torchTaskSpecs": {**pair(restartPolicy="OnFailure"), "Board": task()}}},
        ends={"one": "Succeeded"},
        restarts={"one": 1},
        fate=fails("worker", 137, 1),
        features=(RESTARTS_ALL,),
        settings={"in_place": "kubernetes"},
    ),
    Scenario(
        name="agentasked",
        queues=ONE,
        jobs={"one": {}},
        ends={"one": "Succeeded"},
        steps=(
            (people.phase("one", "Running"), people.ask("one", id="all")),
            (people.obeyed("one", "all"), people.ask("one", id="worker", task="Worker", index=0)),
        ),
        until=people.obeyed("one", "worker"),
        requests=2,
        features=(RESTARTS_ALL,),
        settings={"in_place": "kubernetes"},
    ),
    Scenario(
        name="oom",
        queues={"a": {"quota": {"memory": str(11 * MEMORY // 2)}}},
        jobs={"one": _growing(), "two": _growing(restartScope="Task")},
        ends={"one": "Succeeded", "two": "Succeeded"},
        restarts={"one": 2, "two": 2},
        fate=fails("worker", OUT_OF_MEMORY, 2),
        settings={"in_place": "local"},
        patience=60.0,
    ),
    Scenario(
        name="oomfull",
        queues={"a": {"quota": {"memory": str(4 * MEMORY)}}},
        jobs={
            "one": _growing(restartScope="Task"),
            "two": {"torchTaskSpecs": {"Solo": task(template=_template(2 * MEMORY))}},
        },
        ends={"one": "Succeeded"},
        restarts={"one": 1},
        steps=((_waits_or_needs_not, people.delete("two")),),
        fate=fails("worker", OUT_OF_MEMORY, 1),
        until=_is_there,
        patience=60.0,
    ),
    Scenario(
        name="asked",
        queues=ONE,
        jobs={"one": {}},
        ends={"one": "Succeeded"},
        steps=(
            (people.phase("one", "Running"), people.ask("one", id="all")),
            (people.obeyed("one", "all"), people.ask("one", id="worker", task="Worker", index=0)),
            (people.obeyed("one", "worker"), people.ask("one", id="new", how="Recreate")),
        ),
        until=people.obeyed("one", "new"),
        requests=3,
        settings={"in_place": "local"},
    ),
    Scenario(
        name="removed",
        queues={"a": {"quota": {"jobs": "2"}}},
        jobs={"one": {**RESTARTS, "backoffLimit": 0}, "two": {**RESTARTS, "backoffLimit": 0, "restartScope": "Task"}},
        ends={"one": "Succeeded", "two": "Succeeded"},
        disruptions={"one": None, "two": None},
        steps=tuple((people.phase(job, "Running"), people.remove(job, f"{job}-master-0")) for job in ("one", "two")),
        until=_have_lost_a_pod,
    ),
    Scenario(
        name="drained",
        queues={"a": {"quota": {"jobs": "2"}}},
        jobs={"one": {**RESTARTS, "backoffLimit": 0}, "two": {**RESTARTS, "backoffLimit": 0, "restartScope": "Task"}},
        ends={"one": "Succeeded", "two": "Succeeded"},
        disruptions={"one": None, "two": None},
        steps=tuple((people.phase(job, "Running"), people.drain(job, f"{job}-master-0")) for job in ("one", "two")),
        until=_have_lost_a_pod,
    ),
    Scenario(
        name="lostnode",
        queues=ONE,
        jobs={"one": {"backoffLimit": 0}},
        ends={"one": "Succeeded"},
        disruptions={"one": 1},
        steps=((people.phase("one", "Running"), people.silence(FIRST_NODE)),),
        nodes=(FIRST_NODE, SECOND_NODE),
        bad_node=FIRST_NODE,
        settings={"dead_node_grace": 5},
        patience=20.0,
    ),
)
