"""The numbers of workers that the view of a job keeps."""

from typing import Any

import pytest

from coordinator.cache import views
from coordinator.cache.autoscaling import Autoscaling
from coordinator.cache.worker_counts import WantedGrowth, WorkerCounts
from tests.support.coordinator import desk

ADMITTED = {"queue": "a", "attempt": 1, "epoch": 1, "charge": {"cpu": 2000, "pods": 2, "jobs": 1}, "workers": 2}
SCALING = {"from": 2, "to": 4, "since": "2026-01-01T00:01:40Z"}
SINCE = 1767225700.0
GIB = 2**30


TARGET = {"workers": 6, "reason": "Idle", "message": "", "since": "2026-01-01T00:01:40Z", "wish": 4}


def counts(status: dict[str, Any] | None = None, **spec: Any) -> WorkerCounts | None:
    """Return the numbers of workers in the view of a job with 4 workers."""
    body = desk.manifest("train", "a", **{"tasks": {"Worker": desk.task(4)}, **spec})
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


def test_only_what_the_owner_wants_waits_in_the_queue() -> None:
    status = {"phase": "Running", "admission": ADMITTED, "scaling": {**SCALING, "to": 6}, "target": TARGET}
    found = counts(status, **AUTO)
    assert found is not None
    assert found.growth == WantedGrowth(4, SINCE)


def test_a_job_that_gives_workers_back_waits_for_no_more_before_they_are_gone() -> None:
    status = {"phase": "Running", "admission": {**ADMITTED, "workers": 3}, "scaling": SCALING}
    found = counts({**status, "target": {**TARGET, "workers": 2, "reason": "GiveBack"}}, **AUTO)
    assert found is not None
    assert found.growth is None


AUTO = elastic(numMinReplicas=2, numMaxReplicas=8, autoscale="Idle", resizeEverySeconds=60)


@pytest.mark.parametrize(
    ("status", "spec", "changes"),
    [
        pytest.param({}, AUTO, {}, id="waiting"),
        pytest.param({"admission": {**ADMITTED, "workers": 6, "idle": 2}}, AUTO, {"idle": 2}, id="with idle growth"),
        pytest.param(
            {"admission": {**ADMITTED, "workers": 6, "idle": 2}},
            {"torchElasticPolicy": {**AUTO["torchElasticPolicy"], "autoscale": "Off"}},
            {"on": False, "idle": 2},
            id="switched off since",
        ),
        pytest.param(
            {"admission": ADMITTED, "scaling": {**SCALING, "victims": ["train-worker-1"]}},
            AUTO,
            {"change": "Resizing", "leaving": 1, "removed": ("train-worker-1",)},
            id="victims named",
        ),
        pytest.param(
            {"admission": ADMITTED, "scaling": {**SCALING, "to": 1}},
            AUTO,
            {"change": "Resizing", "leaving": 1},
            id="saves before it removes",
        ),
        pytest.param(
            {"admission": ADMITTED, "scaling": {**SCALING, "deadline": "2026-01-01T00:05:00Z"}},
            AUTO,
            {"change": "Resizing"},
            id="added workers join",
        ),
        pytest.param({"admission": ADMITTED, "scaling": SCALING}, AUTO, {}, id="more workers only wait"),
        pytest.param({"admission": ADMITTED, "replacing": ["u7"]}, AUTO, {"change": "Restarting"}, id="restarting"),
        pytest.param(
            {"admission": ADMITTED, "departed": {"train-worker-1": {"node": "n2", "since": SCALING["since"]}}},
            AUTO,
            {"obstacle": "PodsMissing"},
            id="without a node",
        ),
        pytest.param(
            {"admission": ADMITTED, "taskStatuses": {"Worker": {"active": 1, "succeeded": 1}}},
            AUTO,
            {"obstacle": "Ending"},
            id="a worker has succeeded",
        ),
        pytest.param(
            {"resized": {"at": "2026-01-01T00:01:40Z", "seconds": 12}},
            AUTO,
            {"resized_at": SINCE, "growth_seconds": 12.0},
            id="resized before",
        ),
    ],
)
def test_a_job_that_may_be_resized_keeps_what_that_depends_on(
    status: dict[str, Any], spec: dict[str, Any], changes: dict[str, Any]
) -> None:
    found = counts(status, **spec)
    assert found is not None
    assert found.autoscaling == Autoscaling(**{"on": True, "most": 8, "every": 60.0, "exit_seconds": 30.0, **changes})


@pytest.mark.parametrize(
    ("workers", "target", "void"),
    [(4, TARGET, False), (3, TARGET, True), (4, {**TARGET, "workers": 9}, True)],
)
def test_a_target_that_is_not_in_force_is_kept_as_void(workers: int, target: dict[str, Any], void: bool) -> None:
    body = desk.manifest("train", "a", tasks={"Worker": desk.task(workers)}, **AUTO)
    given = {"namespace": "team", "uid": "u1", "creationTimestamp": "2026-01-01T00:00:00Z", "resourceVersion": "1"}
    view = views.job_view({**body, "metadata": {**body["metadata"], **given}, "status": {"target": target}})
    found = view.workers and view.workers.autoscaling
    assert found is not None
    assert found.target is not None
    assert (found.void, found.in_force is None) == (void, void)


@pytest.mark.parametrize(("charged", "obstacle"), [(2 * GIB, "PodsMissing"), (3 * GIB, "")])
def test_a_job_that_waits_for_memory_does_not_grow(charged: int, obstacle: str) -> None:
    template = desk.task(4)["template"]
    container = {**template["spec"]["containers"][0], "resources": {"requests": {"memory": "1Gi"}}}
    worker = {**desk.task(4), "template": {"spec": {"containers": [container]}}, "memoryGrowth": {"max": "4Gi"}}
    status = {"admission": {**ADMITTED, "charge": {"memory": charged}}, "memory": {"Worker": 3 * GIB // 2}}
    found = counts(status, **AUTO, tasks={"Worker": worker})
    assert found is not None
    assert found.autoscaling is not None
    assert found.autoscaling.obstacle == obstacle


def test_a_job_whose_workers_are_critical_takes_no_part() -> None:
    found = counts(**AUTO, tasks={"Worker": {**desk.task(4), "critical": True}})
    assert found is not None
    assert found.autoscaling is not None
    assert not found.autoscaling.on


def test_a_job_that_is_resized_by_its_owner_alone_keeps_nothing_of_that() -> None:
    found = counts(**elastic(numMinReplicas=2, numMaxReplicas=8))
    assert found is not None
    assert found.autoscaling is None
