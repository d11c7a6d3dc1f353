"""Scenarios in which jobs train models: each success makes one ModelVersion, and nothing else makes any."""

from crds.api_resources import MODEL_VERSIONS
from kube.api import Manifest
from tests.faults.scenarios import people
from tests.faults.scenarios.scenario import ONE, Scenario, task

MODEL: Manifest = {"modelOutput": {"modelName": "digits"}, "outputs": {"claimName": "models"}}
BAD = {"torchTaskSpecs": {"Bad": task(restartPolicy="Never")}, **MODEL}
"""A job whose only pod fails."""


def _bad_fails(task_type: str, *_: object) -> int:
    return 1 if task_type == "bad" else 0


SCENARIOS = (
    Scenario(
        name="models",
        queues={"a": {"quota": {"cpu": "4"}}},
        jobs={"one": MODEL, "two": {**MODEL, "cleanPodPolicy": "All"}, "bad": BAD},
        ends={"one": "Succeeded", "two": "Succeeded", "bad": "Failed"},
        fate=_bad_fails,
    ),
    Scenario(
        name="models-missing",
        queues=ONE,
        jobs={"one": MODEL, "two": MODEL},
        ends={"one": "Succeeded", "two": "Succeeded"},
        missing=(MODEL_VERSIONS,),
    ),
    Scenario(
        name="model-cancelled",
        loose=True,
        queues={"a": {"quota": {"cpu": "2"}}},
        jobs={"one": MODEL},
        ends={},
        steps=((people.phase("one", "Running"), people.change("one", cancel=True)),),
        until=people.phase("one", "Failed"),
        settings={"cancelled_ttl_seconds": 20},
        patience=25.0,
    ),
)
