"""The keys under which scale requests are carried out."""

from typing import Any

import pytest

from coordinator.cache import scale_requests
from coordinator.cache.routing_rules import RoutingRules
from coordinator.cache.views import JobPods
from coordinator.routing import route
from crds import scale_request
from crds.keys import JobKey

JOB = JobKey("team", "train", "job")


def stored(owners: tuple[str, ...] = (), **metadata: Any) -> dict[str, Any]:
    body = scale_request.manifest("ScaleOut", "train", toAdd={"count": 1})
    references = [{"kind": "TorchJob", "uid": uid} for uid in owners]
    found = {"name": "r", "namespace": "team", "uid": "request", "resourceVersion": "1", "ownerReferences": references}
    return body | {"metadata": found | metadata}


@pytest.mark.parametrize(
    ("owners", "job", "uid"),
    [
        pytest.param((), JOB, "job", id="a new request of a job"),
        pytest.param(("job",), JOB, "job", id="a request that a worker has seen"),
        pytest.param((), None, "request", id="a request without a job"),
        pytest.param(("job",), None, "job", id="a request of a deleted job"),
        pytest.param(("earlier",), JOB, "earlier", id="a request of an earlier job of that name"),
    ],
)
def test_key_is_that_of_the_job_if_there_is_one(owners: tuple[str, ...], job: JobKey | None, uid: str) -> None:
    request = scale_requests.requested_job(stored(owners))
    assert request.keys(job) == [JobKey("team", "train", uid)]


def test_request_is_unseen_until_a_worker_has_written_a_phase() -> None:
    assert scale_requests.requested_job(stored()).unseen
    assert not scale_requests.requested_job(stored() | {"status": {"phase": "Pending"}}).unseen
    deleted = stored(deletionTimestamp="2026-01-01T00:00:00Z") | {"status": {"phase": "Admitted"}}
    assert scale_requests.requested_job(deleted).unseen


def test_request_is_over_once_it_has_succeeded_or_failed() -> None:
    phases = {phase: {"status": {"phase": phase}} for phase in ("", "Pending", "Scaling", "Succeeded", "Failed")}
    over = {phase: scale_requests.requested_job(stored() | status).over for phase, status in phases.items()}
    assert [phase for phase in over if over[phase]] == ["Succeeded", "Failed"]


@pytest.mark.parametrize("spec", [None, [], {}, {"selector": None}, {"selector": {"name": "a/b"}}])
def test_unreadable_name_is_no_key(spec: Any) -> None:
    assert scale_requests.requested_job(stored() | {"spec": spec}).keys(None) == []


def test_key_with_requests_is_offered_whatever_the_job_does() -> None:
    empty = JobPods()
    before = route.route(JOB, None, empty, RoutingRules(), 5.0)
    assert (before.offer, before.remove) == (None, True)
    found = route.with_requests(before, JOB, None, empty, RoutingRules(), 7.0)
    assert found.offer is not None
    assert (found.offer.key, found.offer.tenant, found.in_turn, found.remove, found.due_at) == (
        JOB,
        "/team",
        True,
        True,
        7.0,
    )
