"""Removals: victims are named, then deleted, then no longer granted. Growths that are taken back."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from crds.torchjob.status import Scaling
from reconcilers.plan.plan import plan
from tests.support.reconcilers import sizes
from tests.support.reconcilers.builders import NOW
from tests.support.reconcilers.resizing import ELASTIC, change, counts, fail, grant_of, resizing, scaling


class TestShrinking:
    def test_victims_are_named_then_deleted_then_free(self) -> None:
        job = resizing(4, **ELASTIC)
        before = counts(job)
        job.want(2)
        job.reconcile()
        named = change(job)
        assert named == Scaling(from_workers=4, to=2, since=NOW, victims=("digits-worker-3", "digits-worker-2"))
        assert not any(pod.deleting for pod in job.pods.values())
        job.work()
        assert [pod.index for pod in job.pods.values() if pod.deleting] == [2, 3]
        assert grant_of(job)[0] == 4
        job.lower()
        assert job.reservation == sizes.held(4)
        job.now += timedelta(seconds=7)
        job.end()
        job.work()
        assert (job.indexes(), grant_of(job), scaling(job)) == ([0, 1], (2, None, 0), None)
        assert job.events == ["Scaled: from 4 to 2 workers in 7 s, requested by its owner at 2026-01-02T03:04:05Z"]
        assert (counts(job), job.writes) == (before, 2)
        job.lower()
        assert job.reservation == sizes.held(2)

    @pytest.mark.parametrize("end", [{"phase": "Failed", "exit_code": 1}, {"phase": "Succeeded", "exit_code": 0}])
    def test_end_of_a_victim_counts_nothing(self, end: dict[str, Any]) -> None:
        job = resizing(3, **ELASTIC)
        before = counts(job)
        job.want(2)
        job.work()
        fail(job, 2, **end)
        job.work()
        assert (counts(job), job.indexes()) == (before, [0, 1, 2])
        job.end()
        job.work()
        assert (counts(job), grant_of(job)[0], scaling(job)) == (before, 2, None)

    def test_smaller_request_during_removal_names_more_victims(self) -> None:
        job = resizing(5, **ELASTIC)
        job.want(4)
        job.work()
        job.now += timedelta(seconds=5)
        job.want(2)
        job.work()
        found = change(job)
        assert found.victims == ("digits-worker-4", "digits-worker-3", "digits-worker-2")
        assert (found.to, found.since) == (2, NOW)
        job.end()
        job.work()
        assert (grant_of(job)[0], scaling(job)) == (2, None)

    @pytest.mark.parametrize("wish", [3, 4, 6])
    def test_named_victims_go_although_more_workers_are_wanted_again(self, wish: int) -> None:
        job = resizing(4, **ELASTIC)
        job.want(2)
        job.work()
        job.now += timedelta(seconds=5)
        job.want(wish)
        job.work()
        job.give(wish)  # the coordinator offers no room as long as there are victims
        job.end()
        job.work()
        assert grant_of(job)[0] == 2
        assert scaling(job) == Scaling(from_workers=2, to=wish, since=job.now)
        job.lower()
        job.give(wish)
        job.work()
        assert job.indexes() == list(range(wish))

    def test_joining_workers_go_first(self) -> None:
        job = resizing(2, **ELASTIC)
        job.want(5)
        job.work()
        job.give(5)
        job.work()
        job.run(4)
        job.want(4)
        job.work()
        found = change(job)
        assert found.victims == ("digits-worker-4",)
        job.end()
        job.work()
        found = change(job)
        assert (found.from_workers, found.deadline is None, found.victims) == (2, False, ())
        assert grant_of(job) == (4, None, 1)
        job.run()
        job.work()
        assert scaling(job) is None

    def test_victim_on_a_dead_node_is_deleted_without_the_node(self) -> None:
        job = resizing(3, **ELASTIC)
        job.pods["digits-worker-1"] = replace(job.pods["digits-worker-1"], node="n2")
        job.want(2)
        for action in plan(replace(job.observe(), leaving_nodes=frozenset({"n2"})), job.settings, job.now).actions:
            job.carry_out(action)
        job.work()
        job.dead = frozenset({"n2"})
        job.now += timedelta(seconds=1000)
        job.work()
        assert (job.indexes(), grant_of(job), counts(job)[2]) == ([0, 2], (2, "0,2", 0), (0, 0, 1))

    def test_lead_of_a_static_world_stays(self) -> None:
        job = resizing(3, **ELASTIC)
        job.pods["digits-worker-0"] = replace(job.pods["digits-worker-0"], phase="Pending", node="")
        job.want(1)
        job.work()
        job.end()
        job.work()
        assert job.indexes() == [0]

    def test_pods_of_critical_task_are_never_removed(self) -> None:
        job = resizing(3, **ELASTIC)
        assert job.manifest is not None
        job.manifest["spec"]["torchTaskSpecs"]["Worker"]["critical"] = True
        job.want(2)
        job.work()
        assert (job.indexes(), scaling(job)) == ([0, 1, 2], None)


class TestRevokedGrowth:
    def test_grant_follows_a_growth_that_was_taken_back(self) -> None:
        job = resizing(2, **ELASTIC)
        job.want(4)
        job.work()
        job.give(4)
        job.reconcile()
        assert grant_of(job)[0] == 4
        job.revoke(2)
        job.work()
        assert (job.indexes(), grant_of(job)) == ([0, 1], (2, None, 1))
        assert scaling(job) == Scaling(from_workers=2, to=4, since=NOW)
        job.give(4)
        job.work()
        assert job.indexes() == [0, 1, 2, 3]

    def test_workers_that_have_pods_stay(self) -> None:
        job = resizing(2, **ELASTIC)
        job.want(5)
        job.work()
        job.give(5)
        job.work()
        del job.pods["digits-worker-2"], job.pods["digits-worker-4"]
        job.revoke(3)
        job.work()
        assert (job.indexes(), grant_of(job)) == ([0, 1, 3], (3, "0-1,3", 1))

    def test_no_missing_worker_is_made_beyond_the_reserved_room_while_the_job_saves(self) -> None:
        job = resizing(4, schedulingPolicy={"checkpointSeconds": 30}, **ELASTIC)
        job.want(1)
        del job.pods["digits-worker-0"]
        job.reservation = sizes.held(3)
        job.work()
        assert job.indexes() == [1, 2, 3]

    def test_missing_worker_waits_for_the_room_of_a_removed_one(self) -> None:
        """The first worker is never removed. So another worker is removed although it has a pod and the first worker
        has none.
        """
        job = resizing(3, **ELASTIC)
        del job.pods["digits-worker-0"]
        job.reservation = sizes.held(1)
        job.work()
        assert job.indexes() == [1, 2]
        job.end()
        job.work()
        assert job.indexes() == [0]
