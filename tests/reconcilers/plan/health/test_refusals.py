"""Gangs that their scheduler does not bind: the reports of a worker, and how the job gives its room back. The tests run
for each gang scheduler.
"""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from crds import timestamps
from crds.api_resources import ALPHA_POD_GROUPS, NATIVE_POD_GROUPS
from crds.torchjob import conditions, torchjob
from crds.torchjob.status import TorchJobStatus
from gang import backends
from reconcilers.plan.plan import plan
from reconcilers.settings import ReconcileSettings
from reconcilers.values import Blocker, WriteStatus
from tests.support.reconcilers.builders import ADMISSION, NOW, RESERVATION, manifest, status, task
from tests.support.reconcilers.gang_simulation import GangSimulation

WORDS = "0/3 nodes are available: 3 Insufficient nvidia.com/gpu"
"""The message of the scheduler."""
TOGETHER = sorted(set(backends.BACKENDS) - {"none"})
KINDS = {"v1beta1": frozenset({NATIVE_POD_GROUPS}), "v1alpha2": frozenset({ALPHA_POD_GROUPS})}


def refusing(scheduler: str, served: str = "v1beta1", **spec: Any) -> GangSimulation:
    """Return a job that is admitted and whose gang the scheduler does not bind."""
    described = manifest(
        {"Worker": task(3)}, **{"schedulingPolicy": {"gangScheduler": scheduler}, "backoffLimit": 0, **spec}
    )
    picked = replace(RESERVATION, charge=torchjob.parse(described).spec.charge)
    settings = ReconcileSettings(served=KINDS[served], admission_timeout=600.0)
    return GangSimulation(described, reservation=picked, settings=settings)


def turn(world: GangSimulation, seconds: float = 0.0, *, let_in: bool = True) -> TorchJobStatus:
    """Let time pass, and let a worker do the due work. The scheduler has no node for the pods. Return the status."""
    world.now += timedelta(seconds=seconds)
    for _ in range(5):
        world.pods = {name: pod for name, pod in world.pods.items() if not pod.deleting}
        world.reconcile()
        since = world.now.timestamp()
        for name, group in world.groups.items():
            world.groups[name] = replace(group, since=group.since or since, message="" if let_in else WORDS)
            if let_in and group.phase != "Ready":
                world.let_in(name)
        for name, pod in world.pods.items():
            if not pod.node and not pod.problem:
                world.pods[name] = replace(pod, phase="Pending", since=since, problem=f"Unschedulable: {WORDS}")
    job = world.job
    assert job is not None
    return job.status


def recall(world: GangSimulation, at: TorchJobStatus) -> None:
    """Take the room back because of a refusal, as the leader does."""
    assert world.manifest is not None
    assert at.refused_since is not None
    world.manifest["status"]["recalled"] = timestamps.format_time(at.refused_since)


@pytest.mark.parametrize("let_in", [True, False])
@pytest.mark.parametrize("served", KINDS)
@pytest.mark.parametrize("scheduler", TOGETHER)
def test_refused_gang_gives_its_room_back_when_it_is_recalled(scheduler: str, served: str, let_in: bool) -> None:
    world = refusing(scheduler, served)
    assert turn(world, let_in=let_in).refused_since is None, "the gang may be bound soon"
    began = world.now
    told = turn(world, 11, let_in=let_in)
    assert told.refused_since == began.replace(microsecond=0)
    assert turn(world, 500, let_in=let_in).phase == "Admitted", "no other job waits"
    recall(world, told)
    after = turn(world, let_in=let_in)
    assert (after.phase, world.pods, world.groups) == ("Queued", {}, {})
    assert (after.admission, after.refused_since, after.recalled) == (None, None, None)
    assert after.queue is not None
    assert (after.queue.reason, after.queue.refusals) == ("WaitingForScheduler", 1)
    assert (after.queue.tries, after.restart_count) == (0, 0)
    assert WORDS in after.queue.message


def test_pauses_double_up_to_five_minutes() -> None:
    world, pauses = refusing("koordinator"), []
    for attempt in range(1, 8):
        assert world.reservation is not None
        world.reservation = replace(world.reservation, attempt=attempt)
        turn(world)
        recall(world, turn(world, 11))
        queue = turn(world).queue
        assert queue is not None
        assert queue.not_before is not None
        pauses.append((queue.not_before - world.now).total_seconds())
    for pause, longest in zip(pauses, (15, 30, 60, 120, 240, 300, 300), strict=True):
        assert 0.75 * longest - 1 <= pause <= longest


@pytest.mark.parametrize("change", [{"node": "n1", "problem": "ContainerCreating"}, {"since": NOW.timestamp() + 30}])
def test_gang_that_was_bound_or_made_anew_meanwhile_keeps_its_room(change: dict[str, Any]) -> None:
    world = refusing("koordinator")
    turn(world)
    told = turn(world, 50)
    world.pods = {name: replace(pod, **change) for name, pod in world.pods.items()}
    recall(world, told)
    after = turn(world)
    assert (after.phase, after.recalled) == ("Admitted", None)
    assert after.refused_since != told.refused_since
    assert len(world.pods) == 3


@pytest.mark.parametrize("scheduler", backends.BACKENDS)
def test_only_a_gang_that_has_not_begun_is_refused(scheduler: str) -> None:
    ran = status(
        "Admitted",
        admission=ADMISSION | {"gangScheduler": scheduler, "admittedAt": "2026-01-02T03:00:00Z"},
        conditions=[
            {"type": kind, "status": said, "reason": "Restarting", "lastTransitionTime": "2026-01-02T03:01:00Z"}
            for kind, said in (("Admitted", "True"), ("Running", "False"))
        ],
    )
    world = refusing(scheduler, status=ran)
    turn(world)
    assert turn(world, 40).refused_since is None, "the pods are made again after a restart"


@pytest.mark.parametrize(("scheduler", "minimum", "bound"), [("none", 3, 0), ("kubernetes", 2, 2)])
def test_pods_without_a_gang_are_not_refused(scheduler: str, minimum: int, bound: int) -> None:
    world = refusing(scheduler, minMembers={"Worker": minimum})
    turn(world)
    for name in sorted(world.pods)[:bound]:
        world.pods[name] = replace(world.pods[name], node="n1", problem="ContainerCreating")
    assert turn(world, 40).refused_since is None


def test_closed_queue_of_volcano_is_a_refusal() -> None:
    world = refusing("volcano")
    turn(world, let_in=False)
    message = f"Volcano's queue small is Closed {'x' * 2000}"
    closed = {"phase": "Refused", "reason": "GangQueueClosed", "message": message}
    world.groups = {name: replace(group, **closed) for name, group in world.groups.items()}  # type: ignore[arg-type]
    world.reconcile()
    job = world.job
    assert job is not None
    recall(world, job.status)
    for _ in range(3):
        world.reconcile()
    after = world.job
    assert after is not None
    assert after.status.phase == "Queued"
    assert after.status.queue is not None
    assert "Volcano's queue small is Closed" in after.status.queue.message


@pytest.mark.parametrize("reason", ["PodGroupRefused", "PodGroupMissing"])
def test_group_that_the_api_server_does_not_take_is_a_refusal(reason: str) -> None:
    world = refusing("volcano")
    world.reconcile(1)

    def blocked() -> TorchJobStatus:
        """Make a plan as if a webhook has refused the group, and carry the plan out."""
        planned = plan(replace(world.observe(), obstacle=Blocker(reason, "closed")), world.settings, world.now)
        for action in planned.actions:
            world.carry_out(action)
        job = world.job
        assert job is not None
        return job.status

    told = blocked()
    assert told.refused_since == world.now.replace(microsecond=0)
    world.now += timedelta(seconds=30)
    writes = [each for each in world.plan().actions if isinstance(each, WriteStatus)]
    assert not writes, "the next try writes nothing before its end"
    assert blocked() == told
    recall(world, told)
    assert conditions.find(blocked().conditions, "Admitted") is not None
    world.reconcile()
    job = world.job
    assert job is not None
    assert (job.status.phase, job.status.queue and job.status.queue.message) == ("Queued", "closed")
