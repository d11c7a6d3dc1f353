"""The line about the restart of a job that a user follows."""

from typing import Any

import pytest

from coordinator.follow import wait_reasons
from coordinator.follow.wait_reasons import RestartCounts
from crds import timestamps

NOW = timestamps.parse_seconds("2026-01-02T03:04:05Z")
CAUSE = "pod train-worker-1 failed with exit code 3 (Error): RuntimeError: no\nmore"


def job(reason: str = "Restarting", **status: Any) -> dict[str, Any]:
    admitted = {"type": "Admitted", "status": "True", "reason": reason, "message": CAUSE}
    return {"metadata": {}, "spec": {"backoffLimit": 4}, "status": {"conditions": [admitted], **status}}


@pytest.mark.parametrize(
    ("before", "item", "expected"),
    [
        (RestartCounts(), job(), ""),
        (RestartCounts(2, 1), job(restartCount=2, disruptions=1), ""),
        (
            RestartCounts(1),
            job(restartCount=2, restartNotBefore="2026-01-02T03:04:46Z"),
            "restart 2 of 4 in 41s: pod train-worker-1 failed with exit code 3 (Error): RuntimeError: no more",
        ),
        (
            RestartCounts(),
            job(restartCount=1, restartNotBefore="2026-01-02T03:04:06Z"),
            "restart 1 of 4: pod train-worker-1 failed with exit code 3 (Error): RuntimeError: no more",
        ),
        (RestartCounts(), job("Running", restartCount=1), "restart 1 of 4"),
        (RestartCounts(workers=4), job(admission={"workers": 4}, scaling={"to": 2}), "resize from 4 to 2 workers"),
        (RestartCounts(workers=2), job(admission={"workers": 2}, scaling={"to": 4}), ""),
        (RestartCounts(workers=2), job(admission={"workers": 4}), "resize from 2 to 4 workers"),
        (RestartCounts(workers=2), job(), ""),
        (
            RestartCounts(2),
            job(restartCount=2, disruptions=1, restartNotBefore="2026-01-02T03:04:46Z"),
            "restart that is not the job's fault, number 1: "
            "pod train-worker-1 failed with exit code 3 (Error): RuntimeError: no more",
        ),
    ],
)
def test_line_names_the_number_the_pause_and_the_cause(
    before: RestartCounts, item: dict[str, Any], expected: str
) -> None:
    assert wait_reasons.describe_restart(before, item, NOW) == expected
    assert wait_reasons.describe_restart(wait_reasons.restart_counts(item), item, NOW) == "", (
        "each restart is told once"
    )
