"""Growing and shrinking in place: whole stories, and what the next worker finds after each step."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from crds.torchjob.status import Scaling
from reconcilers.plan.plan import plan
from reconcilers.settings import ReconcileSettings
from tests.support.reconcilers import sizes
from tests.support.reconcilers.builders import NOW
from tests.support.reconcilers.resizing import Resizing, resizing

POLICY = {"numMinReplicas": 1, "numMaxReplicas": 9, "mode": "InPlaceRestart", "joinTimeoutSeconds": 100}
ELASTIC: dict[str, Any] = {"torchElasticPolicy": POLICY}
STEPPED: dict[str, Any] = {"torchElasticPolicy": POLICY | {"numMinReplicas": 2, "replicaStep": 2}}


def grant_of(job: Resizing) -> tuple[int, str | None, int]:
    """Return the granted number of workers, their indexes, and the number of growths."""
    admission = job.known.admission
    assert admission is not None
    assert admission.workers is not None
    assert admission.grown is not None
    assert admission.charge == sizes.charge(admission.workers)
    return admission.workers, admission.indexes, admission.grown


def scaling(job: Resizing) -> Scaling | None:
    return job.known.status.scaling


def change(job: Resizing) -> Scaling:
    """Return the change under way."""
    found = scaling(job)
    assert found is not None
    return found


def counts(job: Resizing) -> tuple[Any, ...]:
    """Return what a resize leaves as it is."""
    found = job.known.status
    numbers = (found.restart_count, found.disruptions, found.attempt)
    return found.phase, found.start_time, numbers


def fail(job: Resizing, index: int, **how: Any) -> None:
    """Let a worker end by itself."""
    name = f"digits-worker-{index}"
    job.pods[name] = replace(job.pods[name], **({"phase": "Failed", "exit_code": 137, "reason": "OOMKilled"} | how))


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
        assert (counts(job), job.writes) == (before, 3)

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
        assert admission.declined == 1
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
        job.give(wish)  # the coordinator offers nothing as long as there are victims
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
        """The first worker is never removed, so another one goes although it has a pod and the first has none."""
        job = resizing(3, **ELASTIC)
        del job.pods["digits-worker-0"]
        job.reservation = sizes.held(1)
        job.work()
        assert job.indexes() == [1, 2]
        job.end()
        job.work()
        assert job.indexes() == [0]


class TestChangedLabels:
    @pytest.mark.parametrize("changed", [{"task": "other"}, {"index": 7}])
    def test_pod_whose_labels_were_changed_is_made_again_and_the_others_stay(self, changed: dict[str, Any]) -> None:
        job = resizing(3, restartScope="Task", **ELASTIC)
        uids = {name: pod.uid for name, pod in job.pods.items()}
        name = "digits-worker-1"
        job.pods[name] = replace(job.pods[name], **changed)
        job.work()
        assert [pod.name for pod in job.pods.values() if pod.deleting] == [name]
        assert (job.known.status.restart_count, job.known.status.disruptions, scaling(job)) == (0, 1, None)
        assert "pod digits-worker-1 was deleted (LabelsChanged): its labels were changed" in job.events[0]
        job.end()
        job.work()
        made = job.pods[name]
        assert (made.task, made.index) == ("worker", 1)
        assert made.uid != uids.pop(name)
        assert {name: job.pods[name].uid for name in uids} == uids
        assert job.known.status.disruptions == 1

    def test_pod_that_has_ended_keeps_its_end_whatever_its_labels_are(self) -> None:
        job = resizing(2, restartScope="Task", **ELASTIC)
        fail(job, 1, phase="Succeeded", exit_code=0)
        job.work()
        name = "digits-worker-1"
        job.pods[name] = replace(job.pods[name], index=7)
        job.work()
        assert not job.pods[name].deleting
        fail(job, 0, phase="Succeeded", exit_code=0)
        job.work()
        assert job.known.status.phase == "Succeeded"


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
