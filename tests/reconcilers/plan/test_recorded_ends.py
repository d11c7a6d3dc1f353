"""A job whose time to live is over, while the history may not have its end yet."""

from datetime import timedelta

import pytest

from crds.torchjob.status import TorchJobStatus
from reconcilers.plan.plan import plan
from reconcilers.settings import ReconcileSettings
from reconcilers.values import DeleteJob, DeletePods, InvalidJob, Observation, Recording
from tests.support.reconcilers.builders import NOW, job, observe, pod, status

SETTINGS = ReconcileSettings(history_patience=100.0)
ENDED = status("Succeeded", completionTime="2026-01-02T03:04:05Z")
VERSION = 500


def over(recording: Recording | None, *pods: str) -> Observation:
    """Return a job of VERSION whose time to live was over at NOW."""
    ended = job(status=ENDED, ttlSecondsAfterFinished=0)
    metadata = ended.metadata.model_copy(update={"resource_version": str(VERSION)})
    members = [pod(phase=phase) for phase in pods]
    return observe(ended.model_copy(update={"metadata": metadata}), *members, reservation=None, recording=recording)


@pytest.mark.parametrize(
    ("version", "recorded_before", "over_for", "waits"),
    [
        pytest.param(VERSION, 0, 1, None, id="the end is in the history"),
        pytest.param(VERSION - 1, 0, 1, 10, id="the history is behind"),
        pytest.param(VERSION - 1, 0, 60, 30, id="the history has been behind for a minute"),
        pytest.param(VERSION - 1, 0, 95, 5, id="the patience is almost over"),
        pytest.param(VERSION - 1, 0, 100, None, id="the patience is over"),
        pytest.param(VERSION - 1, 95, 1, 5, id="the recorder has been silent for almost as long"),
        pytest.param(VERSION - 1, 100, 1, None, id="the recorder has been silent for too long"),
        pytest.param(VERSION, 1000, 1, None, id="the end was recorded long ago"),
        pytest.param(VERSION - 1, -3600, 95, 5, id="the Lease is of the future"),
    ],
)
def test_expired_job_waits_until_its_end_is_recorded(
    version: int, recorded_before: float, over_for: float, waits: float | None
) -> None:
    now = NOW + timedelta(seconds=over_for)
    found = plan(over(Recording(version, now.timestamp() - recorded_before)), SETTINGS, now)
    assert found.actions == ((DeleteJob(),) if waits is None else ())
    assert found.requeue_after == waits


def test_expired_job_is_deleted_at_once_where_nobody_records() -> None:
    assert plan(over(None), SETTINGS, NOW).actions == (DeleteJob(),)


def test_patience_of_zero_waits_for_nobody() -> None:
    behind = over(Recording(VERSION - 1, NOW.timestamp()))
    assert plan(behind, ReconcileSettings(history_patience=0.0), NOW).actions == (DeleteJob(),)


def test_expired_job_that_waits_still_has_its_pods_deleted() -> None:
    found = plan(over(Recording(VERSION - 1, NOW.timestamp()), "Running"), SETTINGS, NOW)
    assert [type(action) for action in found.actions] == [DeletePods]


def test_invalid_job_waits_in_the_same_way() -> None:
    ended = TorchJobStatus.model_validate(ENDED)
    broken = InvalidJob(problems=(), status=ended, generation=1, resource_version=str(VERSION), time_to_live=0)
    behind = observe(broken, reservation=None, recording=Recording(VERSION - 1, NOW.timestamp()))
    assert (plan(behind, SETTINGS, NOW).actions, plan(behind, SETTINGS, NOW).requeue_after) == ((), 10.0)
    recorded = observe(broken, reservation=None, recording=Recording(VERSION, NOW.timestamp()))
    assert plan(recorded, SETTINGS, NOW).actions == (DeleteJob(),)
