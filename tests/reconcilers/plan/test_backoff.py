"""The pauses between restarts, and the restarts of a job that fails repeatedly."""

import itertools
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crds import labels
from crds.keys import JobKey
from crds.torchjob.status import TorchJobStatus
from reconcilers.plan import backoff
from reconcilers.plan.moment import Deadline
from reconcilers.settings import ReconcileSettings
from reconcilers.values import Action, CreatePods, DeletePods, EmitEvent, PatchPodMetadata
from reconcilers.views.pod_view import PodView
from tests.support.reconcilers.builders import KEY, NOW, RESERVATION, job, manifest, status, task
from tests.support.reconcilers.simulation import Simulation, merged

SETTINGS = ReconcileSettings(admission_timeout=600.0)
MASTER, WORKER_0, WORKER_1 = ALL = ["digits-master-0", "digits-worker-0", "digits-worker-1"]
HOUR = timedelta(hours=1)


def after(seconds: float) -> Any:
    return NOW + timedelta(seconds=seconds)


class TestThePauses:
    @pytest.mark.parametrize(
        ("number", "most"), [(1, 0), (2, 10), (3, 20), (4, 40), (5, 80), (6, 160), (7, 320), (8, 360), (10**6, 360)]
    )
    def test_pause_doubles_from_ten_seconds_to_six_minutes(self, number: int, most: float) -> None:
        assert 0.75 * most <= backoff.pause(KEY, number, SETTINGS) <= most

    def test_pause_differs_between_jobs_and_is_constant_for_one_job(self) -> None:
        keys = [JobKey("team", "digits", f"uid-{number}") for number in range(20)]
        assert len({backoff.pause(each, 3, SETTINGS) for each in keys}) == len(keys)
        assert [backoff.pause(each, 3, SETTINGS) for each in keys] == [
            backoff.pause(each, 3, SETTINGS) for each in keys
        ]

    def test_pause_is_zero_when_restart_backoff_is_zero(self) -> None:
        assert backoff.pause(KEY, 9, ReconcileSettings(restart_backoff=0.0)) == 0

    @given(st.integers(0, 12), st.floats(-(10**6), 10**6), st.booleans(), st.lists(st.sampled_from(ALL), unique=True))
    def test_remaining_pause_is_bounded_for_any_clock(
        self, number: int, step: float, known: bool, pods: list[str]
    ) -> None:
        before = TorchJobStatus(consecutive_restarts=number, restart_not_before=NOW if known else None)
        counted = before.model_copy(update=backoff.count_restart(KEY, before, pods, SETTINGS, NOW))
        assert 0 <= backoff.remaining_pause(counted, SETTINGS, after(step)) <= 361
        kept = TorchJobStatus.model_validate(counted.manifest())
        assert backoff.remaining_pause(kept, SETTINGS, NOW) == backoff.remaining_pause(counted, SETTINGS, NOW), (
            "the pause must be the same after the status was written"
        )

    def test_backoff_is_forgotten_after_ten_minutes_of_running(self) -> None:
        ran = status("Running", restartNotBefore="2026-01-02T03:01:00Z", consecutiveRestarts=4)
        assert job(status=ran).status.conditions[1].last_transition_time < after(-200)
        at = job(status=ran).status
        assert backoff.seconds_until_forgotten(at, after(0)) == 415
        assert backoff.forget_if_stable(at, after(414)) == at
        assert backoff.forget_if_stable(at, after(415)).manifest().keys().isdisjoint({"restartNotBefore"})
        assert backoff.forget_if_stable(at, after(415)).consecutive_restarts == 0
        assert backoff.seconds_until_forgotten(job(status=ran | {"conditions": []}).status, after(9999)) is None

    def test_pauses_begin_only_after_many_disruptions(self) -> None:
        found, waited = TorchJobStatus(), []
        for _ in range(13):
            now = after(sum(waited))
            found = found.model_copy(update=backoff.count_disruption(found, [], SETTINGS, now))
            waited.append(backoff.remaining_pause(found, SETTINGS, now))
        assert waited == [0.0] * 10 + [10.0] * 3
        slow = TorchJobStatus()
        for number in range(200):
            slow = slow.model_copy(update=backoff.count_disruption(slow, [], SETTINGS, after(10 * number)))
            assert backoff.remaining_pause(slow, SETTINGS, after(10 * number)) == 0


@dataclass
class Trouble(Simulation):
    """A job on a node that starts every pod at once. After 0.1 s, the pods end as `ends` says."""

    ends: Callable[[PodView], dict[str, Any] | None] = field(default=lambda _: {"exit_code": 1})
    done: Counter[str] = field(default_factory=Counter)
    restarts_at: list[float] = field(default_factory=list)

    def carry_out(self, action: Action) -> None:
        super().carry_out(action)
        match action:
            case CreatePods(made):
                self.done["pods"] += len(made)
                if MASTER in [each["metadata"]["name"] for each in made]:  # once per restart
                    self.restarts_at.append((self.now - NOW).total_seconds())
            case DeletePods(pods) | PatchPodMetadata(pods):
                self.done["pods"] += len(pods)
            case EmitEvent():
                self.done["events"] += 1
            case _:
                self.done["status"] += 1

    def go_on(self, seconds: float, most: int = 2000) -> None:
        """Let time pass. The worker reconciles after each change, and when the plan requests a reconcile."""
        until = self.now + timedelta(seconds=seconds)
        while self.now < until and most:
            most -= 1
            leaving = {pod.uid for pod in self.pods.values() if pod.deleting}
            planned = self.plan()
            for action in planned.actions:
                self.carry_out(action)
            self.pods = {name: pod for name, pod in self.pods.items() if pod.uid not in leaving}
            moved = self._nodes() or any(pod.deleting for pod in self.pods.values()) or bool(leaving)
            wait = planned.requeue_after if planned.requeue_after is not None else seconds
            self.now = min(until, self.now + timedelta(seconds=0.1 if planned.actions or moved else max(wait, 0.001)))

    def _nodes(self) -> bool:
        before = dict(self.pods)
        for name, pod in before.items():
            if pod.phase == "Pending":
                self.pods[name] = replace(pod, phase="Running", node="n1")
            elif pod.phase == "Running" and not pod.deleting and (how := self.ends(pod)) is not None:
                self.pods[name] = replace(pod, **({"phase": "Failed"} | how))
        return self.pods != before

    def annotate(self, text: str) -> None:
        assert self.manifest
        self.manifest["metadata"]["annotations"][labels.RESTART_REQUEST] = text

    def say(self, **change: Any) -> None:
        assert self.manifest
        self.manifest = merged(self.manifest, change)

    @property
    def status(self) -> TorchJobStatus:
        assert self.job
        return self.job.status

    @property
    def left(self) -> float:
        return backoff.remaining_pause(self.status, self.settings, self.now)


def trouble(policy: str = "OnFailure", settings: ReconcileSettings = SETTINGS, **spec: Any) -> Trouble:
    tasks = {
        "Master": task(restartPolicy=policy),
        "Worker": task(2, restartPolicy=policy, dependsOn=[]),
    }
    described = manifest(tasks, **({"backoffLimit": 1000} | spec))
    return Trouble(described, reservation=RESERVATION, settings=settings)


def only(*names: str, how: dict[str, Any] | None = None) -> Callable[[PodView], dict[str, Any] | None]:
    return lambda pod: (how or {"exit_code": 1}) if pod.name in names else None


DRIVERS = pytest.mark.parametrize("driver", ["recreate", "local", "kruise", "kubernetes"])
SCOPES = pytest.mark.parametrize("scope", ["Job", "Task"])


class TestAJobThatFailsAgainAndAgain:
    @DRIVERS
    @SCOPES
    def test_job_that_keeps_failing_costs_few_writes(self, driver: Any, scope: str) -> None:
        world = trouble(settings=replace(SETTINGS, in_place=driver), restartScope=scope)
        world.go_on(3600)
        assert world.now - NOW == HOUR
        assert 8 <= world.status.restart_count <= 60
        assert world.done.total() < 600, world.done
        assert world.status.phase != "Failed"

    @SCOPES
    def test_failures_of_two_tasks_in_turn_share_one_backoff(self, scope: str) -> None:
        world = trouble(restartScope=scope)
        turns = iter(range(10**6))
        world.ends = lambda pod: {"exit_code": 1} if pod.name == ALL[next(turns) % 3] else None
        world.go_on(3600)
        assert world.status.restart_count <= 60
        assert world.done.total() < 600, world.done

    def test_repeated_out_of_memory_kills_cost_few_writes(self) -> None:
        world = trouble("ExitCode")
        world.ends = only(WORKER_0, how={"exit_code": 137, "reason": "OOMKilled"})
        world.go_on(3600)
        assert world.done.total() < 600, world.done

    @SCOPES
    @pytest.mark.parametrize(
        "how",
        [
            {"phase": "Running", "deleting": True},
            {"reason": "NodeAffinity"},
            {"reason": "OutOfcpu"},
            {"disruption": "EvictionByEvictionAPI"},
        ],
    )
    def test_endless_disruptions_are_spaced(self, scope: str, how: dict[str, Any]) -> None:
        world = trouble(restartScope=scope, settings=replace(SETTINGS, most_disruptions=10**6))
        world.ends = only(MASTER, how=how)
        world.go_on(600)
        assert 60 <= world.status.disruptions <= 75
        assert (world.status.restart_count, world.status.consecutive_restarts) == (0, 0)
        assert world.done.total() < 900, world.done

    def test_failures_within_one_second_use_up_few_restarts(self) -> None:
        world = trouble(backoffLimit=6)
        world.ends = lambda _: {"exit_code": 1} if world.now < after(1) else None
        world.go_on(120)
        assert (world.status.phase, world.status.restart_count) == ("Running", 2)

    def test_first_restart_is_immediate_and_later_ones_wait(self) -> None:
        world = trouble()
        world.go_on(100)
        made = world.restarts_at
        gaps = [later - earlier for earlier, later in itertools.pairwise(made)]
        assert gaps[0] < 1
        for gap, most in zip(gaps[1:], (10, 20, 40), strict=False):
            assert 0.7 * most <= gap <= most + 2

    def test_backoff_starts_over_after_ten_minutes_without_failure(self) -> None:
        world = trouble()
        world.go_on(100)
        count = world.status.restart_count
        world.ends = only()
        world.go_on(1300)
        kept = world.status.manifest()
        assert kept.keys().isdisjoint({"restartNotBefore"})
        assert (kept["consecutiveRestarts"], kept["restartCount"]) == (0, count)
        world.ends = only(WORKER_0)
        world.go_on(1)
        assert world.status.restart_count == count + 2, "the first restart comes at once"
        assert world.left > 5


def paused(scope: str = "Job", seconds: float = 30.0, **spec: Any) -> Trouble:
    """Return a job in a pause of about 40 seconds after failures of its first worker."""
    world = trouble(restartScope=scope, **spec)
    world.ends = only(WORKER_0)
    world.go_on(seconds)
    assert world.status.consecutive_restarts == 4
    assert 10 < world.left <= 40
    return world


class TestInThePause:
    def test_paused_job_keeps_its_admission_and_states_when_it_restarts(self) -> None:
        world = paused()
        (said,) = (each for each in world.status.conditions if each.type == "Admitted")
        assert (world.pods, world.status.phase, said.reason) == ({}, "Admitted", "Restarting")
        assert world.status.admission is not None
        when = world.status.manifest()["restartNotBefore"]
        assert said.message.endswith(f"back-off: all pods are created again at {when}")
        assert not world.plan().actions
        assert world.plan().requeue_after == pytest.approx(world.left)

    def test_pause_of_a_single_pod_leaves_other_pods_running(self) -> None:
        world = paused("Task")
        assert (sorted(world.pods), world.status.phase) == ([MASTER, WORKER_1], "Running")
        assert world.status.backing_off == (WORKER_0,)

    def test_pod_deleted_during_the_pause_is_recreated_at_once(self) -> None:
        world = paused("Task")
        before, left = world.status, world.left
        world.pods[WORKER_1] = replace(world.pods[WORKER_1], deleting=True)
        world.go_on(1)
        assert sorted(world.pods) == [MASTER, WORKER_1]
        assert world.status.disruptions == 1
        assert world.left == pytest.approx(left - 1)
        assert world.status.consecutive_restarts == before.consecutive_restarts

    def test_pod_that_fails_during_the_pause_waits_without_extending_it(self) -> None:
        world = paused("Task")
        before = world.status
        world.ends = only(WORKER_1)
        world.go_on(1)
        assert (sorted(world.pods), set(world.status.backing_off)) == ([MASTER], {WORKER_0, WORKER_1})
        assert world.status.restart_not_before == before.restart_not_before
        assert world.status.restart_count == before.restart_count + 1

    def test_failed_pod_that_is_removed_is_not_recreated_before_the_pause_ends(self) -> None:
        world = paused("Task")
        world.pods.pop(WORKER_0, None)
        world.go_on(1)
        assert WORKER_0 not in world.pods

    @SCOPES
    @pytest.mark.parametrize("request_", ['{"id": "a"}', '{"id": "a", "task": "Worker"}'])
    def test_restart_request_ends_the_pause(self, scope: str, request_: str) -> None:
        world = paused(scope)
        count = world.status.consecutive_restarts
        world.annotate(request_)
        world.ends = only()
        world.go_on(2)
        assert sorted(world.pods) == ALL
        assert (world.left, world.status.consecutive_restarts) == (0, count)

    def test_suspending_and_resuming_ends_the_pause(self) -> None:
        world = paused()
        world.say(spec={"suspend": True})
        world.go_on(1)
        assert (world.status.phase, world.status.restart_not_before) == ("Suspended", None)
        world.say(spec={"suspend": False})
        world.reservation = replace(RESERVATION, attempt=2)
        world.ends = only()
        world.go_on(1)
        assert sorted(world.pods) == ALL

    def test_active_deadline_fails_job_during_the_pause(self) -> None:
        world = paused(activeDeadlineSeconds=35)
        world.go_on(10)
        (said,) = (each for each in world.status.conditions if each.status == "True")
        assert (said.type, said.reason) == ("Failed", "DeadlineExceeded")
        assert world.status.restart_not_before is None

    @SCOPES
    def test_interrupted_reconcile_after_the_pause_counts_failure_once(self, scope: str) -> None:
        for most in range(5):
            world = paused(scope)
            world.go_on(world.left + 0.5)
            world.reconcile(most)
            world.go_on(1)
            assert world.status.consecutive_restarts == 5
            assert world.left > 50
            assert WORKER_0 not in world.pods

    def test_admission_timeout_starts_after_the_pause(self) -> None:
        world = paused()
        found = world.job
        assert found is not None
        late = Deadline(600.0, world.now, world.left)
        assert late.remaining(found, ()) == pytest.approx(600.0 + world.left)
        world.now += timedelta(seconds=world.left + 10)
        assert Deadline(600.0, world.now).remaining(found, ()) == pytest.approx(590.0)

    def test_healthy_pods_restart_in_place_after_the_pause(self) -> None:
        world = trouble(settings=replace(SETTINGS, in_place="local"))
        world.ends = only(WORKER_0)
        described = status("Running", restartNotBefore="2026-01-02T03:03:00Z", consecutiveRestarts=2)
        world.say(status=described)
        world.go_on(0.25)
        world.ends = only()
        world.go_on(1)
        old = world.pods[MASTER]
        assert (sorted(world.pods), old.requested_restart, world.left > 10) == ([MASTER, WORKER_1], "", True)
        world.go_on(world.left + 0.1)
        assert world.pods[MASTER].requested_restart == "1"

    def test_node_restarts_during_the_pause_count_as_one_restart(self) -> None:
        world = trouble(settings=replace(SETTINGS, in_place="kubernetes"), restartScope="Task")
        again = lambda pod: {"phase": "Running", "restarts": pod.restarts + 1, "exit_code": 1}  # noqa: E731
        world.ends = lambda pod: again(pod) if pod.name == WORKER_0 else None
        world.go_on(60)
        assert world.pods[WORKER_0].restarts > 50
        assert world.status.restart_count <= 6
        assert world.done.total() < 40, world.done


def test_status_without_backoff_fields_has_no_pause() -> None:
    old = job(status=status("Running", restartCount=5)).status
    assert (
        old.consecutive_restarts,
        backoff.remaining_pause(old, SETTINGS, NOW),
        backoff.seconds_until_forgotten(old, NOW),
    ) == (0, 0, None)
    assert backoff.count_restart(KEY, old, [], SETTINGS, NOW)["consecutive_restarts"] == 1
