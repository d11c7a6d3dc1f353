"""Before some workers are removed, workers are asked to save. The removal begins when they have saved or the time is
over.
"""

from datetime import timedelta
from typing import Any

import pytest

from crds import labels
from reconcilers.plan.plan import plan
from tests.support.reconcilers.builders import NOW
from tests.support.reconcilers.resizing import Resizing, resizing

POLICY: dict[str, Any] = {"numMinReplicas": 1, "numMaxReplicas": 9, "mode": "InPlaceRestart"}
SAVING: dict[str, Any] = {"torchElasticPolicy": POLICY, "schedulingPolicy": {"checkpointSeconds": 30}}
NUMBER = str(int(NOW.timestamp()))


def shrinking(wish: int = 2) -> Resizing:
    """Return a job of three workers that was asked to save."""
    job = resizing(3, **SAVING)
    job.want(wish)
    job.work()
    return job


def victims(job: Resizing) -> tuple[str, ...]:
    scaling = job.known.status.scaling
    assert scaling is not None
    return scaling.victims


def test_removal_waits_for_the_answer() -> None:
    job = shrinking()
    assert (victims(job), job.notes[labels.CHECKPOINT_REQUESTED]) == ((), NUMBER)
    assert (job.known.status.restart_generation, job.plan().requeue_after) == (0, 30.0)
    job.annotate({labels.CHECKPOINT_COMPLETED: str(int(NUMBER) - 1)})
    job.work()
    assert victims(job) == (), "the answer was to an earlier request"
    job.annotate({labels.CHECKPOINT_COMPLETED: NUMBER})
    job.work()
    assert victims(job) == ("digits-worker-2",)
    job.end()
    job.work()
    assert (job.indexes(), job.known.status.scaling, job.writes) == ([0, 1], None, 3)


def test_removal_goes_on_without_an_answer() -> None:
    job = shrinking()
    job.now += timedelta(seconds=29)
    job.work()
    assert victims(job) == ()
    job.now += timedelta(seconds=1)
    job.work()
    assert victims(job) == ("digits-worker-2",)


def test_smaller_request_is_not_asked_again() -> None:
    job = shrinking()
    job.now += timedelta(seconds=10)
    job.want(1)
    job.work()
    assert job.notes[labels.CHECKPOINT_REQUESTED] == NUMBER
    job.now += timedelta(seconds=20)
    job.work()
    assert victims(job) == ("digits-worker-2", "digits-worker-1")


def test_request_that_is_taken_back_removes_nothing() -> None:
    job = shrinking()
    job.want(3)
    job.work()
    assert (job.known.status.scaling, job.indexes()) == (None, [0, 1, 2])


def test_nobody_is_asked_to_save_for_workers_that_do_not_train() -> None:
    job = resizing(3, **SAVING)
    job.want(5)
    job.work()
    job.give(5)
    job.work()
    job.want(3)
    job.work()
    assert victims(job) == ("digits-worker-4", "digits-worker-3")
    assert labels.CHECKPOINT_REQUESTED not in job.notes


@pytest.mark.parametrize("done", range(4))
def test_request_is_made_once_whoever_goes_on(done: int) -> None:
    job = resizing(3, **SAVING)
    job.want(2)
    for _ in range(done):
        job.reconcile(1)
    job.work()
    assert (job.notes[labels.CHECKPOINT_REQUESTED], job.writes) == (NUMBER, 1)
    assert not plan(job.observe(), job.settings, job.now).actions
