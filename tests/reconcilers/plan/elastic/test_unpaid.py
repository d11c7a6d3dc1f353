"""Idle growth whose room others need: it is free in time, whatever state the job is in, and costs the job nothing."""

from dataclasses import replace
from datetime import timedelta

import pytest

from reconcilers.settings import ReconcileSettings
from reconcilers.values import DeletePods, EmitEvent
from tests.reconcilers.plan.elastic.test_target_changes import grown, idle
from tests.support.reconcilers.resizing import Resizing, counts, fail, grant_of

GRACE = ReconcileSettings().idle_grace
SAVES = {"schedulingPolicy": {"checkpointSeconds": 300}}


def with_grace(job: Resizing, seconds: int) -> None:
    job.pods = {name: replace(pod, grace=seconds) for name, pod in job.pods.items()}


def shortened(job: Resizing) -> list[tuple[list[int], int | None]]:
    """Return the indexes of pods that the next plan gives less grace, and how much."""
    found = (each for each in job.plan().actions if isinstance(each, DeletePods) and each.seconds is not None)
    return [([pod.index for pod in each.pods], each.seconds) for each in found]


def test_room_without_pods_is_free_at_once_while_rank_0_takes_its_grace() -> None:
    job = grown(1, 4)
    job.settings = ReconcileSettings(in_place="recreate")
    fail(job, 1)
    job.work()
    assert {pod.deleting for pod in job.pods.values()} == {True}
    job.pods = {name: pod for name, pod in job.pods.items() if pod.index == 0}  # the others have ended
    job.work()
    assert (grant_of(job)[0], job.indexes()) == (4, [0])
    job.aim(1, "GiveBack")
    job.work()
    assert (grant_of(job)[0], idle(job), job.indexes()) == (1, 0, [0])


@pytest.mark.parametrize(("wish", "victims"), [(1, 3), (2, 0)])
def test_unpaid_room_does_not_wait_for_a_restart_in_place(wish: int, victims: int) -> None:
    job = grown(wish, 4)
    fail(job, 1)
    while job.reconcile():  # the node does not restart the others
        pass
    job.aim(1, "GiveBack")
    while job.reconcile():
        pass
    assert len(job.known.status.victims) == victims


def test_pods_that_are_late_get_no_further_grace_and_count_as_nothing() -> None:
    job = grown(2, 4)
    with_grace(job, 3600)
    before = counts(job)
    job.aim(2, "GiveBack")
    job.work()
    job.now += timedelta(seconds=GRACE - 1)
    assert shortened(job) == []
    job.now += timedelta(seconds=1)
    assert shortened(job) == [([2, 3], 1)]
    (said,) = (each.message for each in job.plan().actions if isinstance(each, EmitEvent))
    assert "others need the room of this idle growth" in said
    job.end()
    job.work()
    assert (grant_of(job)[0], idle(job), counts(job)) == (2, 0, before)


def test_workers_that_are_asked_back_later_share_the_time_of_the_first() -> None:
    job = grown(1, 4)
    with_grace(job, 3600)
    job.aim(3, "GiveBack")
    job.work()
    job.now += timedelta(seconds=GRACE - 1)
    job.aim(1, "GiveBack")
    job.work()
    assert shortened(job) == []
    assert {pod.index for pod in job.pods.values() if pod.deleting} == {1, 2, 3}
    job.now += timedelta(seconds=1)
    assert shortened(job) == [([1, 2, 3], 1)]
    job.end()
    job.work()
    assert (grant_of(job)[0], idle(job)) == (1, 0)


def test_late_paid_workers_keep_their_grace() -> None:
    job = grown(3, 4)
    with_grace(job, 3600)
    job.aim(2, "GiveBack")
    job.work()
    job.now += timedelta(seconds=GRACE)
    assert shortened(job) == [([3], 1)]


def test_time_to_save_ends_so_early_that_the_grace_fits_in() -> None:
    job = grown(2, 4, **SAVES)
    job.aim(2, "GiveBack")
    job.work()
    assert job.known.status.victims == ()
    with_grace(job, 40)
    job.now += timedelta(seconds=GRACE - 40 - 1)
    job.work()
    assert job.known.status.victims == ()
    job.now += timedelta(seconds=1)
    job.work()
    assert job.known.status.victims == ("digits-worker-3", "digits-worker-2")


def test_paid_workers_have_the_time_to_save_that_their_owner_has_set() -> None:
    job = grown(3, 4, **SAVES)
    job.aim(2, "GiveBack")
    job.now += timedelta(seconds=GRACE)
    job.work()
    assert job.known.status.victims == ()
