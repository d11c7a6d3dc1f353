"""What the view of a job keeps of its numbers of workers."""

from typing import Any

import pytest

from coordinator.cache import views
from coordinator.cache.worker_counts import WantedGrowth, WorkerCounts
from tests.support.coordinator import desk

ADMITTED = {"queue": "a", "attempt": 1, "epoch": 1, "charge": {"cpu": 2000, "pods": 2, "jobs": 1}, "workers": 2}
SCALING = {"from": 2, "to": 4, "since": "2026-01-01T00:01:40Z"}
SINCE = 1767225700.0


def counts(status: dict[str, Any] | None = None, **spec: Any) -> WorkerCounts | None:
    """Return what the view of a job with 4 workers keeps."""
    body = desk.manifest("train", "a", tasks={"Worker": desk.task(4)}, **spec)
    given = {"namespace": "team", "uid": "u1", "creationTimestamp": "2026-01-01T00:00:00Z", "resourceVersion": "1"}
    return views.job_view({**body, "metadata": {**body["metadata"], **given}, "status": status or {}}).workers


def elastic(**policy: Any) -> dict[str, Any]:
    return {"torchElasticPolicy": {"mode": "InPlaceRestart", **policy}}


def test_a_job_that_is_never_resized_keeps_nothing() -> None:
    assert counts() is None
    assert counts(minMembers={"Worker": 4}) is None


@pytest.mark.parametrize(
    ("spec", "least", "step"),
    [
        (elastic(numMinReplicas=2, numMaxReplicas=8, replicaStep=2), 2, 2),
        (elastic(numMaxReplicas=8, replicaStep=2), 4, 2),
        ({"minMembers": {"Worker": 3}}, 3, 1),
    ],
)
def test_a_job_keeps_its_least_number_of_workers_and_what_one_more_takes(
    spec: dict[str, Any], least: int, step: int
) -> None:
    charge = {"cpu": least * 1000, "pods": least, "jobs": 1}
    assert counts(**spec) == WorkerCounts(least, 4, step, charge, {"cpu": 1000, "pods": 1})


@pytest.mark.parametrize(
    ("scaling", "growth"),
    [
        (SCALING, WantedGrowth(4, SINCE)),
        ({**SCALING, "request": "ScaleOut/more"}, WantedGrowth(4, SINCE, whole=True)),
        ({**SCALING, "notBefore": "2026-01-01T00:01:40Z"}, WantedGrowth(4, SINCE, SINCE)),
        ({**SCALING, "victims": ["train-worker-3"]}, None),
        ({**SCALING, "to": 2}, None),
        ({**SCALING, "to": 1}, None),
        (None, None),
    ],
)
def test_only_an_admitted_job_that_wants_more_workers_grows(
    scaling: dict[str, Any] | None, growth: WantedGrowth | None
) -> None:
    spec = elastic(numMinReplicas=2, numMaxReplicas=8)
    admitted = counts({"phase": "Running", "admission": ADMITTED, "scaling": scaling}, **spec)
    assert admitted is not None
    assert admitted.growth == growth
    waiting = counts({"phase": "Queued", "scaling": scaling}, **spec)
    assert waiting is not None
    assert waiting.growth is None
