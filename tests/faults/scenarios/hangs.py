"""Scenarios in which jobs report their steps, and in which some of them hang."""

from tests.faults.scenarios import people
from tests.faults.scenarios.scenario import ONE, Scenario, pair, task

HEALTH = {"hangTimeoutSeconds": 60, "firstStepSeconds": 60, "onHang": "Restart"}
TWO = {"a": {"quota": {"jobs": "2"}}}


def _all_stand(_: str, __: int, restarts: int, step: int) -> bool:
    return step >= 3 and restarts == 0


def _worker_stands(task_type: str, _: int, restarts: int, step: int) -> bool:
    return task_type == "worker" and step >= 3 and restarts == 0


SCENARIOS = (
    Scenario(
        name="hang",
        queues=TWO,
        jobs={
            "one": {"torchTaskSpecs": pair(restartPolicy="OnFailure"), "health": HEALTH},
            "mute": {"health": HEALTH},
        },
        ends={"one": "Succeeded", "mute": "Succeeded"},
        restarts={"one": 1},
        until=people.restarted("one"),
        reports={"one": 5.0},
        stands=_all_stand,
        least_steps=2,
        settings={"in_place": "local"},
        patience=100.0,
    ),
    Scenario(
        name="hangalone",
        queues=ONE,
        jobs={"one": {"torchTaskSpecs": pair(restartPolicy="OnFailure"), "restartScope": "Task", "health": HEALTH}},
        ends={"one": "Succeeded"},
        restarts={"one": 1},
        until=people.restarted("one"),
        reports={"one": 5.0},
        stands=_worker_stands,
        least_steps=2,
        patience=110.0,
    ),
    Scenario(
        name="hangforged",
        queues=TWO,
        jobs={
            "one": {"torchTaskSpecs": {"Worker": task(restartPolicy="OnFailure")}, "health": HEALTH},
            "forger": {},
        },
        ends={"one": "Succeeded", "forger": "Succeeded"},
        restarts={"one": 1},
        until=people.restarted("one"),
        reports={"one": 5.0, "forger": 20.0},
        forged="one",
        stands=_worker_stands,
        least_steps=2,
        patience=100.0,
    ),
    Scenario(
        name="hangflush",
        queues=ONE,
        jobs={"one": {"health": {"hangTimeoutSeconds": 60, "onHang": "Restart"}}},
        ends={"one": "Succeeded"},
        reports={"one": 40.0},
        least_steps=4,
        patience=180.0,
    ),
)
