"""The next write of a resize when the wish changes, when workers succeed, or when the job is suspended."""

from dataclasses import replace
from datetime import timedelta

import pytest

from crds.torchjob.status import Scaling
from tests.support.reconcilers.builders import NOW
from tests.support.reconcilers.resizing import ELASTIC, fail, grant_of, resizing, scaling


class TestWish:
    @pytest.mark.parametrize(("wish", "since"), [(6, 30), (4, 0), (5, 0)])
    def test_only_a_larger_request_is_younger(self, wish: int, since: int) -> None:
        job = resizing(2, **ELASTIC)
        job.want(5)
        job.work()
        job.now += timedelta(seconds=30)
        job.want(wish)
        job.work()
        assert scaling(job) == Scaling(from_workers=2, to=wish, since=NOW + timedelta(seconds=since))

    def test_request_that_is_taken_back_while_it_waits_leaves_nothing(self) -> None:
        job = resizing(2, **ELASTIC)
        job.want(4)
        job.work()
        job.want(2)
        job.work()
        assert (scaling(job), job.indexes(), job.events) == (None, [0, 1], [])


class TestEnd:
    def test_no_worker_is_added_after_the_first_success(self) -> None:
        job = resizing(2, **ELASTIC)
        job.want(4)
        job.work()
        job.give(4)
        job.pods["digits-worker-0"] = replace(job.pods["digits-worker-0"], phase="Succeeded")
        job.work()
        assert (job.indexes(), grant_of(job), scaling(job)) == ([0, 1], (2, None, 1), None)
        job.pods["digits-worker-1"] = replace(job.pods["digits-worker-1"], phase="Succeeded")
        job.work()
        assert job.known.status.phase == "Succeeded"

    def test_joining_workers_go_at_the_first_success(self) -> None:
        job = resizing(2, **ELASTIC)
        job.want(4)
        job.work()
        job.give(4)
        job.work()
        job.run(2)
        job.pods["digits-worker-0"] = replace(job.pods["digits-worker-0"], phase="Succeeded")
        job.work()
        job.end()
        job.work()
        assert (job.indexes(), grant_of(job), scaling(job)) == ([0, 1], (2, None, 1), None)

    def test_finished_job_has_no_change_under_way(self) -> None:
        job = resizing(3, **ELASTIC)
        job.want(2)
        job.work()
        for name, pod in job.pods.items():
            job.pods[name] = replace(pod, phase="Succeeded")
        job.work()
        assert (job.known.status.phase, scaling(job)) == ("Succeeded", None)


class TestInterruptions:
    @pytest.mark.parametrize("stage", range(4))
    def test_suspension_ends_a_change_at_every_point(self, stage: int) -> None:
        job = resizing(3, **ELASTIC)
        steps = [lambda: job.want(5 if stage < 3 else 1), job.work, lambda: job.give(5), job.work]
        for step in steps[: stage + 1]:
            step()
        job.suspend(True)
        job.work()
        job.end()
        job.work()
        assert (job.known.status.phase, scaling(job), job.known.admission) == ("Suspended", None, None)

    def test_no_pod_of_a_static_world_meets_a_removed_one_from_before_a_restart(self) -> None:
        job = resizing(3, restartScope="Job", **ELASTIC)
        job.want(2)
        job.work()
        fail(job, 0)
        job.work()
        kept = {"digits-worker-2": job.pods["digits-worker-2"]}
        job.pods = kept
        job.work()
        assert job.indexes() == [2]
        job.end()
        job.work()
        assert [(pod.index, pod.restart) for pod in job.pods.values()] == [(0, 2), (1, 2)]

    def test_job_that_is_resumed_before_its_pods_are_gone_keeps_its_grant(self) -> None:
        job = resizing(4, **ELASTIC)
        job.want(3)
        job.work()
        job.suspend(True)
        job.work()
        job.suspend(False)
        job.work()
        job.end()
        job.work()
        assert (job.indexes(), grant_of(job)[0], scaling(job)) == ([0, 1, 2], 3, None)
