"""Which tasks decide, over specs."""

from typing import Any

import pytest

from reconcilers import tasks
from tests.reconcilers.builders import job, task


def after(upstream: str, phase: str = "Succeeded") -> dict[str, Any]:
    return task(dependsOn=[{"taskType": upstream, "phase": phase}])


@pytest.mark.parametrize(
    ("declared", "decisive"),
    [
        ({"Master": task(), "Worker": task(3)}, {"Master"}),
        ({"Trainer": task(), "Board": task()}, {"Trainer", "Board"}),
        ({"Trainer": task(), "Board": task(restartPolicy="Always")}, {"Trainer"}),
        ({"Master": task(), "Worker": after("Master", "Running")}, {"Master"}),
        ({"Prepare": task(), "Master": after("Prepare"), "Worker": after("Prepare")}, {"Master"}),
        ({"Master": task(), "Evaluate": after("Master")}, {"Master", "Evaluate"}),
        ({"Master": task(), "Worker": task(), "Evaluate": after("Worker")}, {"Master", "Evaluate"}),
        (
            {"Master": task(), "Evaluate": after("Master"), "Report": after("Evaluate")},
            {"Master", "Evaluate", "Report"},
        ),
    ],
)
def test_whose_success_is_the_jobs(declared: dict[str, Any], decisive: set[str]) -> None:
    assert tasks.decisive(job(declared).spec) == decisive
