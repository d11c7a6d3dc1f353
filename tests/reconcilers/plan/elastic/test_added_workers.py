"""Growths: added workers are granted, written and made; added workers join in time, or are given up."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from crds.torchjob.status import Scaling
from reconcilers.settings import ReconcileSettings
from tests.support.reconcilers import sizes
from tests.support.reconcilers.builders import NOW
from tests.support.reconcilers.resizing import ELASTIC, POLICY, change, counts, grant_of, resizing, scaling

STEPPED: dict[str, Any] = {"torchElasticPolicy": POLICY | {"numMinReplicas": 2, "replicaStep": 2}}


class TestGrowth:
    def test_growth_is_granted_then_written_then_made(self) -> None:
        job = resizing(2, **ELASTIC)
        before = counts(job)
        job.want(4)
        job.work()
        assert (job.indexes(), grant_of(job)) == ([0, 1], (2, None, 0))
        wanted = change(job)
        assert (wanted.from_workers, wanted.to, wanted.since, wanted.deadline) == (2, 4, NOW, None)
        job.give(4)
        job.work()
        assert (job.indexes(), grant_of(job)) == ([0, 1, 2, 3], (4, None, 1))
        joining = change(job)
        assert joining.deadline == NOW + timedelta(seconds=100)
        job.now += timedelta(seconds=12)
        job.run()
        job.work()
        assert scaling(job) is None
        assert job.events == ["Scaled: from 2 to 4 workers in 12 s, requested by its owner at 2026-01-02T03:04:05Z"]
        assert (counts(job), job.writes) == (before, 4)

    def test_part_of_a_growth_runs_while_the_rest_waits_with_its_age(self) -> None:
        job = resizing(2, **ELASTIC)
        job.want(5)
        job.work()
        job.now += timedelta(seconds=50)
        job.give(3)
        job.work()
        job.run()
        job.work()
        rest = scaling(job)
        assert rest == Scaling(from_workers=3, to=5, since=NOW)
        assert job.events == ["Scaled: from 2 to 3 workers in 50 s, requested by its owner at 2026-01-02T03:04:05Z"]
        job.give(5)
        job.work()
        assert (job.indexes(), grant_of(job)) == ([0, 1, 2, 3, 4], (5, None, 2))

    @pytest.mark.parametrize(("wish", "found"), [(2, (2, None, 1)), (3, (3, None, 1))])
    def test_what_is_wanted_no_more_is_declined(self, wish: int, found: tuple[int, None, int]) -> None:
        job = resizing(2, **ELASTIC)
        job.want(5)
        job.work()
        job.give(5)
        job.want(wish)
        job.work()
        assert grant_of(job) == found
        admission = job.known.admission
        assert admission is not None
        assert admission.declined == 0, "its owner took the wish back: it stays paid"
        assert len(job.indexes()) == wish
        job.lower()
        job.run()
        job.work()
        assert (scaling(job), job.reservation) == (None, sizes.held(wish, 1))

    @pytest.mark.parametrize(("joining", "wish"), [(0, 2), (4, 2), (4, 3)])
    def test_growth_that_is_declined_is_not_granted_again(self, joining: int, wish: int) -> None:
        job = resizing(2, **ELASTIC)
        job.want(joining or 5)
        job.work()
        job.give(joining)
        job.work()
        job.want(6)
        job.work()
        job.give(6)
        job.want(wish)
        for _ in range(3):
            job.reconcile()
            job.give(6)
        assert grant_of(job)[2] == (2 if joining else 1)
        job.end()
        job.work()
        assert (grant_of(job)[0], scaling(job) is None) == (wish, wish == 2)

    def test_growth_fills_the_lowest_free_indexes(self) -> None:
        job = resizing(2, **ELASTIC)
        assert job.manifest is not None
        job.manifest["status"]["admission"]["indexes"] = "1,3"
        for pod in list(job.pods.values()):
            job.pods.pop(pod.name)
        job.work()
        job.run()
        job.want(5)
        job.work()
        job.give(5)
        job.work()
        assert (job.indexes(), grant_of(job)) == ([0, 1, 2, 3, 4], (5, None, 1))

    def test_rest_of_an_admission_waits_from_then_on(self) -> None:
        job = resizing(4, 2, minMembers={"Worker": 2})
        assert job.manifest is not None
        job.manifest["status"] = {"phase": "Queued"}
        job.pods.clear()
        job.work()
        assert scaling(job) == Scaling(from_workers=2, to=4, since=NOW)
        job.run()
        job.work()
        job.give(3)
        job.work()
        assert (job.indexes(), grant_of(job)) == ([0, 1, 2], (3, None, 1))


class TestJoining:
    def test_workers_that_do_not_join_go_with_their_charge(self) -> None:
        job = resizing(2, **ELASTIC)
        job.want(6)
        job.work()
        job.give(6)
        job.work()
        job.run(2, 4)
        job.work()
        job.now += timedelta(seconds=99)
        assert job.plan().requeue_after == 1.0
        job.now += timedelta(seconds=1)
        job.work()
        late = change(job)
        assert set(late.victims) == {"digits-worker-3", "digits-worker-5"}
        assert grant_of(job)[0] == 6
        job.end()
        job.work()
        assert (job.indexes(), grant_of(job)) == ([0, 1, 2, 4], (4, "0-2,4", 1))
        rest = change(job)
        assert rest.not_before is not None
        assert (rest.from_workers, rest.to, rest.since, rest.tries, rest.deadline) == (4, 6, NOW, 1, None)
        assert 45 <= (rest.not_before - job.now).total_seconds() <= 60
        assert job.events[0].startswith(
            "NotJoined: workers did not join within 100 s: digits-worker-5, digits-worker-3"
        )
        job.lower()
        job.give(6)
        assert job.reservation == sizes.held(4, 1)
        job.now = rest.not_before
        job.give(6)
        job.work()
        assert job.indexes() == [0, 1, 2, 3, 4, 5]
        assert counts(job)[2] == (0, 0, 1)

    def test_workers_at_their_gates_wait_for_a_lead_that_is_being_replaced(self) -> None:
        job = resizing(2, **ELASTIC)
        job.want(3)
        job.work()
        job.give(3)
        job.work()
        job.run(2)
        del job.pods["digits-worker-0"]
        job.now += timedelta(seconds=200)
        job.work()
        assert (change(job).victims, job.plan().requeue_after) == ((), None)
        job.run(0)
        job.work()
        assert (scaling(job), grant_of(job), job.known.status.restart_generation) == (None, (3, None, 1), 1)

    def test_pause_doubles_with_each_try_and_ends_with_another_request(self) -> None:
        job = resizing(2, **ELASTIC)
        job.want(3)
        pauses = []
        for _ in range(3):
            job.work()
            job.now += timedelta(hours=1)
            job.give(3)
            job.work()
            job.now += timedelta(seconds=100)
            job.work()
            found = change(job)
            assert found.not_before is not None
            pauses.append((found.tries, (found.not_before - job.now).total_seconds() / 60))
            job.end()
            job.work()
            job.lower()
        assert [tries for tries, _ in pauses] == [1, 2, 3]
        assert all(0.75 * 2**n <= minutes <= 2**n for n, (_, minutes) in enumerate(pauses))
        job.want(4)
        job.work()
        assert scaling(job) == Scaling(from_workers=2, to=4, since=job.now)

    def test_late_workers_leave_a_size_on_the_grid(self) -> None:
        job = resizing(2, **STEPPED)
        job.want(6)
        job.work()
        job.give(6)
        job.work()
        job.run(2, 3, 4)
        job.now += timedelta(seconds=100)
        job.work()
        job.end()
        job.work()
        assert (job.indexes(), grant_of(job)) == ([0, 1, 2, 3], (4, None, 1))

    def test_restart_of_the_whole_job_gives_joining_workers_their_time_again(self) -> None:
        job = resizing(2, restartScope="Job", **ELASTIC)
        job.settings = ReconcileSettings(in_place="recreate")
        job.want(3)
        job.work()
        job.give(3)
        job.work()
        job.pods["digits-worker-1"] = replace(
            job.pods["digits-worker-1"], phase="Failed", exit_code=137, reason="OOMKilled"
        )
        job.work()
        job.end()
        job.work()
        assert {pod.restart for pod in job.pods.values()} == {1}
        assert (job.indexes(), counts(job)[2]) == ([0, 1, 2], (1, 0, 1))
        job.now += timedelta(seconds=200)
        job.run(0, 1)
        job.work()
        found = change(job)
        assert not found.victims
        job.now += timedelta(seconds=100)
        job.work()
        found = change(job)
        assert found.victims == ("digits-worker-2",)

    def test_workers_of_a_stage_that_has_not_begun_join_when_it_begins(self) -> None:
        job = resizing(2, **ELASTIC)
        assert job.manifest is not None
        job.pods.clear()
        tasks = job.manifest["spec"]["torchTaskSpecs"]
        tasks["Prepare"] = tasks["Worker"] | {"numTasks": 1}
        tasks["Worker"] = tasks["Worker"] | {"dependsOn": [{"taskType": "Prepare", "phase": "Succeeded"}]}
        job.work()
        job.run()
        job.want(3)
        job.work()
        job.give(3)
        job.work()
        assert (scaling(job), grant_of(job)[0]) == (None, 3)
        assert [pod.task for pod in job.pods.values()] == ["prepare"]
