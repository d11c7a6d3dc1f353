"""`activeDeadlineSeconds` counts from the admission and ends the job in every state. Only until this deadline may
resources that are reserved for another job be lent to the job.
"""

from dataclasses import replace
from datetime import timedelta

import pytest

from reconcilers.plan.plan import plan
from reconcilers.settings import ReconcileSettings
from reconcilers.values import Blocker
from tests.reconcilers.plan.test_plan import decide, deleted, leaving, made, written
from tests.support.reconcilers.builders import ADMISSION, NOW, RESERVATION, all_pods, job, observe, pod, status

SINCE_ADMISSION = 245
"""The seconds from the admission to NOW."""


def test_job_resumed_while_its_pods_exist_keeps_its_start_time() -> None:
    resumed = leaving("Suspending", activeDeadlineSeconds=300)
    change = written(decide(observe(resumed, *all_pods(deleting=True))))
    assert change["startTime"] == ADMISSION["admittedAt"]


def test_resumed_job_without_admission_time_starts_now() -> None:
    undated = leaving("Suspending").status.manifest() | {"admission": {**ADMISSION, "admittedAt": None}}
    change = written(decide(observe(job(status=undated), *all_pods(deleting=True))))
    assert change["startTime"] == NOW.strftime("%Y-%m-%dT%H:%M:%SZ")


@pytest.mark.parametrize(("seconds", "ends"), [(SINCE_ADMISSION, True), (SINCE_ADMISSION + 1, False)])
def test_job_with_blocked_pods_fails_at_its_deadline(seconds: int, ends: bool) -> None:
    running = job(status=status("Running"), activeDeadlineSeconds=seconds)
    hindered = replace(observe(running, *all_pods()), obstacle=Blocker("NameTaken", "a name is taken"))
    found = decide(hindered)
    assert (written(found).get("phase") == "Failed") is ends
    assert len(deleted(found)) == (3 if ends else 0)
    assert found.requeue_after == (None if ends else 1.0)


@pytest.mark.parametrize(("seconds", "ends"), [(SINCE_ADMISSION, True), (SINCE_ADMISSION + 1, False)])
def test_foreign_pod_does_not_keep_job_from_failing_at_its_deadline(seconds: int, ends: bool) -> None:
    """A user who may create pods can forge an old pod of the job and keep it with a finalizer."""
    running = job(status=status("Running"), activeDeadlineSeconds=seconds)
    stays = pod("Worker", 7, deleting=True, has_finalizers=True, deadline=NOW.timestamp() - 999)
    found = decide(observe(running, *all_pods(), stays))
    assert (written(found).get("phase") == "Failed") is ends
    assert len(deleted(found)) == (3 if ends else 0)
    assert found.requeue_after == (60.0 if ends else 1.0), "the job ends in time, and the pod is looked at later"


@pytest.mark.parametrize(("seconds", "stays"), [(SINCE_ADMISSION, False), (SINCE_ADMISSION + 1, True)])
def test_pods_kept_after_success_are_deleted_at_the_deadline(seconds: int, stays: bool) -> None:
    done = status("Succeeded", admission=ADMISSION, attempt=1, startTime=ADMISSION["admittedAt"])
    kept = job(status=done, cleanPodPolicy="None", activeDeadlineSeconds=seconds)
    found = decide(observe(kept, pod(phase="Succeeded"), pod("Worker", 0), pod("Worker", 1)))
    assert deleted(found) == ([] if stays else ["digits-worker-0", "digits-worker-1"])
    assert found.requeue_after == (1.0 if stays else None)
    # Finished pods use no resources: they stay, and the job is not requeued for them.
    settled = decide(observe(kept, *all_pods("Succeeded")))
    assert (deleted(settled), settled.requeue_after) == ([], None)


def test_backoff_pause_counts_toward_the_deadline() -> None:
    later = (NOW + timedelta(seconds=60)).strftime("%Y-%m-%dT%H:%M:%SZ")
    paused = job(status=status("Admitted", restartNotBefore=later), activeDeadlineSeconds=SINCE_ADMISSION)
    assert written(plan(observe(paused), ReconcileSettings(), NOW))["phase"] == "Failed"


@pytest.mark.parametrize("seconds", [SINCE_ADMISSION, SINCE_ADMISSION + 1])
def test_plan_deletes_pods_of_previous_admission_after_its_deadline(seconds: int) -> None:
    """The deadline of the previous admission does not hold for a new admission, which begins without pods."""
    admitted = job(status=status("Running"), activeDeadlineSeconds=seconds)
    planned = decide(observe(admitted, *all_pods(), reservation=replace(RESERVATION, attempt=2)))
    assert deleted(planned) == ["digits-master-0", "digits-worker-0", "digits-worker-1"]
    assert (written(planned), made(planned)) == ({}, [])
