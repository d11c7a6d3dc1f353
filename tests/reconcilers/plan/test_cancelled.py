"""The end of a job that its owner cancels, in each phase."""

from datetime import timedelta
from typing import Any

import pytest

from crds.torchjob.torchjob import TorchJob
from queues.values import Reservation
from reconcilers.plan.plan import plan
from reconcilers.settings import ReconcileSettings
from reconcilers.values import (
    DeleteJob,
    DeletePods,
    DeleteService,
    EmitEvent,
    InvalidPod,
    Observation,
    Plan,
    WriteStatus,
)
from reconcilers.views.pod_view import PodView
from tests.support.reconcilers.builders import NOW, RESERVATION, all_pods, job, observe, status

SETTINGS = ReconcileSettings(cancelled_ttl_seconds=100)
RUNNING, PENDING = all_pods("Running"), all_pods("Pending")
WAITS = {"name": "team", "since": "2026-01-02T03:00:00Z"}
BACKS_OFF = {"restartNotBefore": "2026-01-02T03:05:00Z", "restartCount": 2, "restartGeneration": 2}


def decide(observation: Observation) -> Plan:
    return plan(observation, SETTINGS, NOW)


def end(found: Plan) -> tuple[str, str]:
    """Return the phase that a plan writes, and the reason of its condition."""
    (change,) = [each.change["status"] for each in found.actions if isinstance(each, WriteStatus)]
    assert change["completionTime"]
    (failed,) = [each for each in change["conditions"] if each["status"] == "True"]
    return change["phase"], failed["reason"]


def deleted(found: Plan) -> set[str]:
    return {each.name for action in found.actions if isinstance(action, DeletePods) for each in action.pods}


@pytest.mark.parametrize(
    ("state", "spec", "pods", "reservation"),
    [
        pytest.param({}, {}, (), None, id="new"),
        pytest.param({}, {}, (), RESERVATION, id="picked, and not admitted yet"),
        pytest.param(status("Queued"), {}, (), None, id="queued"),
        pytest.param(status("Queued"), {"schedulingPolicy": {"hold": True}}, (), None, id="held"),
        pytest.param(status("Queued", queue=WAITS | {"parked": True, "tries": 5}), {}, (), None, id="parked"),
        pytest.param(
            status("Queued", queue=WAITS | {"notBefore": "2026-01-02T04:00:00Z"}), {}, (), None, id="waits to retry"
        ),
        pytest.param(status("Suspended"), {"suspend": True}, (), None, id="suspended"),
        pytest.param(status("Running"), {"suspend": True}, RUNNING, RESERVATION, id="about to be suspended"),
        pytest.param(status("Admitted"), {}, (), RESERVATION, id="admitted without pods"),
        pytest.param(status("Admitted"), {}, PENDING, RESERVATION, id="admitted"),
        pytest.param(status("Admitted", **BACKS_OFF), {}, (), RESERVATION, id="backs off"),
        pytest.param(status("Running"), {}, RUNNING, RESERVATION, id="running"),
        pytest.param(status("Running"), {}, RUNNING, None, id="its reservation was taken back"),
    ],
)
def test_cancelled_job_fails_and_its_pods_are_deleted_after_that(
    state: dict[str, Any], spec: dict[str, Any], pods: tuple[PodView, ...], reservation: Reservation | None
) -> None:
    found = decide(observe(job(status=state, cancel=True, **spec), *pods, reservation=reservation))
    assert end(found) == ("Failed", "Cancelled")
    assert deleted(found) == {each.name for each in pods}
    written = next(place for place, each in enumerate(found.actions) if isinstance(each, WriteStatus))
    assert not any(isinstance(each, DeletePods) for each in found.actions[:written])
    assert EmitEvent("Cancelled", "cancelled by its owner") in found.actions


def test_cancelled_job_that_was_never_admitted_has_no_services_to_delete() -> None:
    found = decide(observe(job(status=status("Queued"), cancel=True), reservation=None))
    assert [type(each) for each in found.actions] == [WriteStatus, EmitEvent]
    admitted = decide(observe(job(status=status("Admitted", attempt=1), cancel=True)))
    assert any(isinstance(each, DeleteService) for each in admitted.actions)


def test_job_whose_pods_have_succeeded_before_it_was_cancelled_has_succeeded() -> None:
    found = decide(observe(job(status=status("Running"), cancel=True), *all_pods("Succeeded")))
    assert end(found) == ("Succeeded", "Succeeded")


def test_invalid_template_of_a_cancelled_job_does_not_matter() -> None:
    found = decide(observe(job(status=status("Admitted"), cancel=True), obstacle=InvalidPod("spec: wrong")))
    assert end(found) == ("Failed", "Cancelled")


def ended(reason: str, **spec: Any) -> TorchJob:
    """Return a job that failed just now."""
    state = status("Failed", completionTime="2026-01-02T03:04:05Z")
    state["conditions"][0]["reason"] = reason
    return job(status=state, **spec)


@pytest.mark.parametrize("policy", ["Running", "All", "None"])
def test_pods_that_run_are_deleted_whatever_pods_are_to_be_kept(policy: str) -> None:
    found = decide(observe(ended("Cancelled", cancel=True, cleanPodPolicy=policy), *RUNNING))
    assert deleted(found) == {each.name for each in RUNNING}


@pytest.mark.parametrize(
    ("reason", "time_to_live", "seconds"),
    [("Cancelled", None, 100), ("Cancelled", 7, 7), ("PodFailed", None, None), ("PodFailed", 7, 7)],
)
def test_cancelled_job_is_deleted_after_its_time_to_live_or_that_of_the_setting(
    reason: str, time_to_live: int | None, seconds: int | None
) -> None:
    spec = {} if time_to_live is None else {"ttlSecondsAfterFinished": time_to_live}
    observation = observe(ended(reason, cancel=True, **spec), reservation=None)
    found = decide(observation)
    assert (found.actions, found.requeue_after) == ((), seconds)
    later = plan(observation, SETTINGS, NOW + timedelta(seconds=seconds or 1e6))
    assert later.actions == (() if seconds is None else (DeleteJob(),))
