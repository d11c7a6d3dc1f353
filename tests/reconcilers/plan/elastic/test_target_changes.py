"""The coordinator's target: idle growth that is taken up, paid for and given back; and targets that are over."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from crds.torchjob.status import Resized, Scaling, Target
from tests.support.reconcilers import sizes
from tests.support.reconcilers.builders import NOW
from tests.support.reconcilers.resizing import (
    ELASTIC,
    POLICY,
    Resizing,
    change,
    counts,
    grant_of,
    resizing,
    scaling,
)


def idle(job: Resizing) -> int:
    """Return how many granted workers are not paid for, after a check that the store has the same numbers."""
    job.lower()
    admission, held = job.known.admission, job.reservation
    assert admission is not None
    assert held == sizes.held(admission.workers or 0, admission.grown or 0, admission.idle)
    return admission.idle


def target(job: Resizing) -> Target | None:
    return job.known.status.target


def resized(job: Resizing) -> Resized | None:
    return job.known.status.resized


def grown(wish: int, size: int, **spec: Any) -> Resizing:
    """Return a job with idle growth, all of whose workers run."""
    job = resizing(wish, **(ELASTIC | spec))
    job.grow_idle(size)
    for _ in range(3):
        job.work()
        job.now += timedelta(seconds=5)
        job.run()
    job.work()
    assert (grant_of(job)[0], idle(job), scaling(job)) == (size, size - wish, None)
    job.writes, job.events = 0, []
    return job


def end(job: Resizing) -> None:
    """End the victims, and let the worker write the rest of the removal."""
    job.work()
    job.end()
    job.work()


class TestIdleGrowth:
    def test_idle_growth_waits_in_no_queue_and_joins_like_any(self) -> None:
        job = resizing(2, **ELASTIC)
        before = counts(job)
        job.aim(4)
        job.work()
        assert (scaling(job), job.writes, job.indexes()) == (None, 0, [0, 1])
        job.grow_idle(4)
        job.work()
        assert (grant_of(job), idle(job), job.indexes()) == ((4, None, 1), 2, [0, 1, 2, 3])
        assert change(job) == Scaling(
            from_workers=2, to=4, since=NOW, deadline=NOW + timedelta(seconds=100), world=change(job).world
        )
        job.now += timedelta(seconds=12)
        job.run()
        job.work()
        assert (scaling(job), resized(job), counts(job)) == (None, Resized(at=job.now, seconds=12), before)
        assert job.events == ["Grown: from 2 to 4 workers in 12 s: for other/next"]
        assert target(job) is not None
        assert job.writes <= 3

    def test_target_that_was_taken_back_before_the_grant_is_taken_up_declines_it(self) -> None:
        job = resizing(2, **ELASTIC)
        job.grow_idle(4)
        job.aim(None)
        job.work()
        assert (grant_of(job), idle(job), job.indexes()) == ((2, None, 1), 0, [0, 1])

    def test_grant_beyond_a_smaller_target_is_declined_in_part(self) -> None:
        job = resizing(2, **ELASTIC)
        job.grow_idle(5)
        job.aim(4)
        job.work()
        assert (grant_of(job), idle(job)) == ((4, None, 1), 2)

    def test_idle_growth_that_does_not_join_is_given_up_for_good(self) -> None:
        job = resizing(2, **ELASTIC)
        job.grow_idle(4)
        job.work()
        job.run(2)
        job.now += timedelta(seconds=100)
        end(job)
        kept = target(job)
        assert kept is not None
        assert (grant_of(job)[0], idle(job), kept.workers, scaling(job)) == (3, 1, 3, None)
        assert resized(job) == Resized(at=job.now, seconds=100)
        assert job.events == [
            "NotJoined: workers did not join within 100 s: digits-worker-3; they are removed",
            "Grown: from 2 to 3 workers in 100 s: for other/next",
        ]

    def test_nothing_is_left_of_a_target_of_which_no_worker_joined(self) -> None:
        job = resizing(2, **ELASTIC)
        job.grow_idle(4)
        job.work()
        job.now += timedelta(seconds=100)
        end(job)
        assert (grant_of(job)[0], idle(job), target(job), scaling(job)) == (2, 0, None, None)

    def test_room_that_is_revoked_is_not_granted_again(self) -> None:
        job = resizing(2, **ELASTIC)
        job.grow_idle(4)
        job.reconcile(1)
        assert job.reservation is not None
        job.reservation = replace(job.reservation, size=2, charge=sizes.charge(2), idle=0)
        end(job)
        assert (grant_of(job)[0], idle(job), target(job), job.indexes()) == (2, 0, None, [0, 1])


class TestWish:
    def test_wish_over_idle_growth_asks_only_for_what_is_not_held(self) -> None:
        job = grown(2, 4)
        job.want(6)
        job.work()
        assert (change(job).from_workers, change(job).to, target(job)) == (4, 6, None)
        assert (grant_of(job)[0], idle(job)) == (4, 2)

    def test_payment_changes_nothing_but_the_count(self) -> None:
        job = grown(2, 5)
        job.want(4)
        job.work()
        assert (scaling(job), job.writes) == (None, 1)
        job.pay(2)
        job.work()
        assert (grant_of(job), idle(job), scaling(job)) == ((5, None, 2), 1, None)
        kept = target(job)
        assert kept is not None
        assert (kept.workers, job.indexes(), job.events) == (5, [0, 1, 2, 3, 4], [])

    def test_smaller_wish_voids_the_target(self) -> None:
        job = grown(3, 5)
        job.want(2)
        end(job)
        assert (grant_of(job)[0], idle(job), target(job), scaling(job)) == (2, 0, None, None)
        assert [said.partition(":")[0] for said in job.events] == ["Scaled"]
        assert job.writes == 2

    def test_growth_that_is_declined_beside_idle_growth_has_paid_for_it(self) -> None:
        job = grown(2, 4)
        job.want(6)
        job.work()
        job.give(6)
        job.want(4)
        job.work()
        assert (grant_of(job), idle(job), job.indexes()) == ((4, None, 2), 0, [0, 1, 2, 3])

    def test_growth_of_the_wish_beside_idle_growth_is_paid_for(self) -> None:
        job = grown(2, 4)
        job.want(6)
        job.work()
        job.give(6)
        job.work()
        assert (grant_of(job), idle(job)) == ((6, None, 2), 2)
        job.pay(2)
        job.work()
        job.run()
        job.work()
        assert (grant_of(job), idle(job), scaling(job)) == ((6, None, 3), 0, None)
        assert job.events[0].startswith("Scaled: from 4 to 6")


class TestGivingBack:
    @pytest.mark.parametrize(("to", "left"), [(4, 2), (3, 1), (2, 0)])
    def test_idle_workers_go_first(self, to: int, left: int) -> None:
        job = grown(2, 5)
        took = resized(job)
        assert took is not None
        assert took.seconds == 5
        job.now += timedelta(seconds=50)
        job.aim(to, "GiveBack")
        job.work()
        assert change(job).victims == tuple(f"digits-worker-{index}" for index in range(4, to - 1, -1))
        job.now += timedelta(seconds=7)
        end(job)
        assert (grant_of(job)[0], idle(job), scaling(job)) == (to, left, None)
        assert (target(job) is None) == (to == 2)
        assert resized(job) == Resized(at=job.now, seconds=took.seconds)
        assert job.events == [f"GaveBack: from 5 to {to} workers in 7 s: for other/next"]
        assert job.writes == 2

    def test_workers_that_the_target_names_go_first(self) -> None:
        job = grown(2, 5)
        named = ["digits-worker-3", "digits-master-0", "gone", "digits-worker-1"]
        job.aim(2, "GiveBack", victims=named)
        job.work()
        assert change(job).victims == ("digits-worker-3", "digits-worker-1", "digits-worker-4")
        end(job)
        assert (grant_of(job)[0], target(job)) == (2, None)

    def test_no_more_workers_go_than_the_target_says_though_it_names_more(self) -> None:
        job = grown(2, 5)
        job.aim(4, "GiveBack", victims=["digits-worker-1", "digits-worker-2"])
        end(job)
        kept = target(job)
        assert (job.indexes(), kept and kept.victims) == ([0, 2, 3, 4], ())

    def test_what_is_given_back_below_the_wish_waits_in_the_queue(self) -> None:
        job = resizing(4, **ELASTIC)
        job.aim(2, "GiveBack")
        end(job)
        assert (grant_of(job)[0], target(job)) == (2, None)
        assert scaling(job) == Scaling(from_workers=2, to=4, since=job.now)
        assert job.writes == 2
        job.lower()
        job.give(4)
        job.work()
        assert job.indexes() == [0, 1, 2, 3]

    def test_growth_that_was_granted_meanwhile_is_declined(self) -> None:
        job = resizing(4, 3, **ELASTIC)
        job.give(4)
        job.aim(2, "GiveBack")
        job.reconcile()
        admission = job.known.admission
        assert admission is not None
        assert (admission.workers, admission.declined) == (3, 1), "the queue of the job is not charged for this growth"
        end(job)
        assert (grant_of(job)[0], job.indexes()) == (2, [0, 1])

    def test_giving_back_that_is_called_off_leaves_idle_growth_as_it_is(self) -> None:
        job = grown(2, 4, schedulingPolicy={"checkpointSeconds": 30})
        job.aim(2, "GiveBack")
        job.work()
        assert (change(job).victims, change(job).to) == ((), 2)
        job.aim(4)
        job.work()
        assert (scaling(job), grant_of(job)[0], job.indexes()) == (None, 4, [0, 1, 2, 3])

    @pytest.mark.parametrize("wish", [2, 4])
    def test_workers_save_before_some_are_given_back(self, wish: int) -> None:
        saves = {"schedulingPolicy": {"checkpointSeconds": 30}}
        job = grown(2, 4, **saves) if wish == 2 else resizing(4, **ELASTIC, **saves)
        job.aim(2, "GiveBack")
        job.work()
        job.now += timedelta(seconds=29)
        job.work()
        assert change(job).victims == ()
        job.now += timedelta(seconds=1)
        end(job)
        assert (grant_of(job)[0], job.writes) == (2, 3)

    def test_growth_that_gained_too_little_goes_back(self) -> None:
        job = grown(2, 4)
        job.aim(3, "GainTooSmall", "samples/s per worker fell by 40 %")
        end(job)
        assert (grant_of(job)[0], idle(job), target(job) is not None) == (3, 1, True)
        assert job.events == ["Scaled: from 4 to 3 workers in 0 s: samples/s per worker fell by 40 %"]


class TestOver:
    @pytest.mark.parametrize(("wish", "workers", "reason"), [(3, 3, "GiveBack"), (3, 2, "Idle"), (3, 10, "Idle")])
    def test_target_that_is_over_is_removed(self, wish: int, workers: int, reason: str) -> None:
        """The target is reached, is below the wish, or is beyond numMaxReplicas."""
        job = resizing(wish, **ELASTIC)
        job.aim(workers, reason)
        job.work()
        assert (target(job), scaling(job), job.indexes(), job.writes) == (None, None, [0, 1, 2], 1)

    def test_target_below_the_least_number_removes_nobody(self) -> None:
        job = resizing(3, torchElasticPolicy=POLICY | {"numMinReplicas": 2})
        job.aim(1, "GiveBack")
        job.work()
        assert (target(job), scaling(job), job.indexes()) == (None, None, [0, 1, 2])

    def test_target_is_over_if_no_worker_may_go(self) -> None:
        job = resizing(3, **ELASTIC)
        assert job.manifest is not None
        job.manifest["spec"]["torchTaskSpecs"]["Worker"]["critical"] = True
        job.aim(2, "GiveBack")
        job.work()
        assert (target(job), scaling(job), job.indexes()) == (None, None, [0, 1, 2])

    def test_suspended_job_is_not_given_its_idle_growth_again(self) -> None:
        job = grown(2, 4)
        job.suspend(True)
        job.work()
        job.aim(4)  # a leader that has not heard of the suspension writes this target
        end(job)
        status = job.known.status
        assert (status.phase, status.target, status.admission) == ("Suspended", None, None)
        job.suspend(False)
        job.reservation = replace(sizes.held(2), attempt=2)
        job.work()
        assert (grant_of(job), job.indexes()) == ((2, None, 0), [0, 1])
        assert job.known.admission is not None
        assert job.known.admission.idle == 0

    def test_job_that_is_resumed_in_time_gives_up_its_idle_growth(self) -> None:
        job = grown(2, 4)
        job.suspend(True)
        job.work()
        job.suspend(False)
        end(job)
        job.end()
        job.work()
        assert (grant_of(job)[0], idle(job), target(job), job.indexes()) == (2, 0, None, [0, 1])

    def test_finished_job_has_no_target(self) -> None:
        job = grown(2, 4)
        for name, pod in job.pods.items():
            job.pods[name] = replace(pod, phase="Succeeded")
        job.work()
        assert (job.known.status.phase, target(job)) == ("Succeeded", None)

    def test_restart_of_the_whole_job_keeps_idle_growth(self) -> None:
        job = grown(2, 4, restartScope="Job")
        job.pods["digits-worker-3"] = replace(
            job.pods["digits-worker-3"], phase="Failed", exit_code=137, reason="OOMKilled"
        )
        for _ in range(3):
            end(job)
            job.run()
        job.work()
        assert (grant_of(job)[0], idle(job), scaling(job)) == (4, 2, None)
        assert (target(job) is not None, job.known.status.restart_count, job.indexes()) == (True, 1, [0, 1, 2, 3])
