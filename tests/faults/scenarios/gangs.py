"""Scenarios in which pods are bound as a gang, or in which tasks wait for each other."""

from crds.api_resources import GANG_QUEUES, POD_GROUPS
from tests.faults.scenarios import people
from tests.faults.scenarios.scenario import NAMESPACE, ONE, Scenario, fails, task

VOLCANO = {"schedulingPolicy": {"gangScheduler": "volcano"}}
GANG = {"torchTaskSpecs": {"Master": task(), "Worker": task(2)}, **VOLCANO}
"""A gang whose workers wait for the master: all pods are bound at once, and their gates open one after the other."""
WITH_BOARD = {"torchTaskSpecs": {"Board": task(), "Master": task(), "Worker": task()}}
_AFTER = [{"taskType": "Prepare", "phase": "Succeeded"}]
STAGED = {"torchTaskSpecs": {"Prepare": task(), "Master": task(dependsOn=_AFTER), "Worker": task(2)}}
"""A job of four pods, of which at most three exist at the same time."""

SCENARIOS = (
    Scenario(
        name="gate",
        queues=ONE,
        jobs={
            "one": {
                "torchTaskSpecs": {
                    "Master": task(),
                    "Worker": task(dependsOn=[{"taskType": "Master", "phase": "Running"}]),
                }
            },
        },
        ends={"one": "Succeeded"},
    ),
    Scenario(
        name="gang",
        queues=ONE,
        jobs={"one": {**WITH_BOARD, **VOLCANO, "successPolicy": "Master"}, "two": {**GANG, "cleanPodPolicy": "All"}},
        ends={"one": "Succeeded", "two": "Succeeded"},
        fate=lambda task_type, *_: None if task_type == "board" else 0,
        strangers=True,
    ),
    Scenario(
        name="staged",
        queues={"a": {"quota": {"cpu": "3"}}},
        jobs={"one": {**STAGED, **VOLCANO}, "two": STAGED},
        ends={"one": "Succeeded", "two": "Succeeded"},
    ),
    Scenario(
        name="waves",
        queues=ONE,
        jobs={"one": {**GANG, "restartScope": "Job", "backoffLimit": 2}},
        ends={"one": "Succeeded"},
        restarts={"one": 2},
        fate=fails("worker", 137, 2),
        patience=30.0,
    ),
    Scenario(
        name="refused",
        queues={"a": {"quota": {"cpu": "3"}}},
        jobs={"one": {**GANG, "backoffLimit": 0}, "two": GANG},
        ends={"one": "Succeeded", "two": "Succeeded"},
        refused="one",
        settings={"refused_after": 12},
        patience=60.0,
    ),
    Scenario(
        name="nogroup",
        queues=ONE,
        jobs={"one": {**GANG, "restartScope": "Task", "backoffLimit": 1}},
        ends={"one": "Succeeded"},
        restarts={"one": 1},
        fate=fails("worker", 137, 1),
        steps=(
            (people.phase("one", "Admitted"), lambda cluster: cluster.delete(POD_GROUPS, "one-0", NAMESPACE)),
            (people.phase("one", "Running"), people.delete_group("one", "one-0")),
        ),
        until=people.tampered("one"),
        tampered=True,
    ),
    Scenario(
        name="crd",
        queues=ONE,
        jobs={"one": GANG},
        ends={"one": "Succeeded"},
        steps=((people.said("one", "PodGroupMissing"), people.install_volcano),),
        missing=(POD_GROUPS, GANG_QUEUES),
        patience=90.0,
    ),
)
