"""Any graph of tasks succeeds despite disturbances, with and without a gang scheduler."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crds.api_resources import ALPHA_POD_GROUPS, NATIVE_POD_GROUPS
from crds.torchjob import torchjob
from gang import backends
from reconcilers.settings import ReconcileSettings
from tests.support.reconcilers.builders import ADMISSION, RESERVATION, manifest, status, task
from tests.support.reconcilers.gang_simulation import GangSimulation

SCHEDULERS = tuple(backends.BACKENDS)
NAMES = ("Master", "Prepare", "Worker", "AIMaster", "Evaluate")


@st.composite
def graphs(draw: st.DrawFn) -> dict[str, Any]:
    """Draw tasks with dependencies that form no cycle."""
    names = draw(st.permutations(NAMES))[: draw(st.integers(1, len(NAMES)))]
    found = {}
    for place, name in enumerate(names):
        upstreams = draw(st.lists(st.sampled_from(names[:place]), unique=True, max_size=2)) if place else []
        phases = st.sampled_from(["Running", "Succeeded"])
        found[name] = task(
            1 if name == "Master" else draw(st.integers(1, 3)),
            dependsOn=[{"taskType": each, "phase": draw(phases)} for each in upstreams],
            auxiliary=draw(st.booleans()) if name in ("AIMaster", "Evaluate") else False,
            restartPolicy="OnFailure",
        )
    return found


@st.composite
def worlds(draw: st.DrawFn) -> GangSimulation:
    """Draw a job that was just submitted."""
    tasks = draw(graphs())
    least = {name: draw(st.integers(1, each["numTasks"])) for name, each in tasks.items() if draw(st.booleans())}
    described = manifest(
        tasks,
        minMembers=least,
        restartScope=draw(st.sampled_from(["Job", "Task"])),
        backoffLimit=1000,
        schedulingPolicy={"gangScheduler": draw(st.sampled_from(["", *SCHEDULERS]))},
    )
    chosen = ReconcileSettings(
        gang_scheduler=draw(st.sampled_from(SCHEDULERS)),
        served=draw(st.sampled_from([frozenset({NATIVE_POD_GROUPS}), frozenset({ALPHA_POD_GROUPS})])),
        pods_at_once=draw(st.booleans()),
        in_place=draw(st.sampled_from(["recreate", "local"])),
        admission_timeout=0.0,
    )
    picked = replace(RESERVATION, charge=torchjob.parse(described).spec.charge)
    return GangSimulation(described, reservation=picked, settings=chosen)


def step(world: GangSimulation, most: int = 100) -> None:
    world.pods = {name: pod for name, pod in world.pods.items() if not pod.deleting}
    world.reconcile(most)
    for name in list(world.groups):
        world.let_in(name)


def starts(world: GangSimulation) -> None:
    """Bind pods, start the pods without a closed gate, and do requested restarts, as scheduler and nodes do."""
    for name, pod in world.pods.items():
        if pod.phase == "Pending" and world.bound(pod):
            world.pods[name] = replace(pod, phase="Pending" if pod.gated else "Running", node="n1")
        if pod.phase == "Running" and pod.requested_restart and pod.completed_restart != pod.requested_restart:
            world.pods[name] = replace(pod, completed_restart=pod.requested_restart, restarts=pod.restarts + 1)


def ends(world: GangSimulation, task_type: str) -> None:
    for name, pod in world.pods.items():
        if pod.running and pod.task == task_type:
            world.pods[name] = replace(pod, phase="Succeeded", exit_code=0)


def state(world: GangSimulation) -> Any:
    """Return everything that a step may change."""
    assert world.manifest is not None
    return dict(world.pods), dict(world.groups), world.manifest["metadata"]["resourceVersion"]


def goes_on(world: GangSimulation) -> None:
    """Run the job to its end: pods start, and succeed once nothing else changes. Time passes while a job waits."""
    for _ in range(60):
        job = world.job
        assert job is not None
        if job.is_finished:
            return
        before = state(world)
        step(world)
        starts(world)
        if state(world) == before:
            tasks = sorted({pod.task for pod in world.pods.values() if pod.running})
            wait = world.plan().requeue_after
            assert tasks or wait is not None, f"nothing runs and nothing happens: {world.pods} {world.groups}"
            if tasks:
                ends(world, tasks[0])
            else:  # the job is in backoff
                world.now += timedelta(seconds=wait or 0.0)
    raise AssertionError(f"no end to it: {world.pods}")


@pytest.mark.proof
@given(world=worlds())
@settings(max_examples=60, deadline=None)
def test_undisturbed_job_succeeds_without_restarts(world: GangSimulation) -> None:
    goes_on(world)
    job = world.job
    assert job is not None
    assert job.status.phase == "Succeeded"
    assert (job.status.restart_count, job.status.disruptions) == (0, 0)
    world.settle()
    assert not world.groups, "the groups would hold the room that they requested"


@pytest.mark.proof
@given(world=worlds(), data=st.data())
@settings(max_examples=60, deadline=None)
def test_disturbed_job_succeeds(world: GangSimulation, data: st.DataObject) -> None:
    for _ in range(data.draw(st.integers(1, 12))):
        happens(world, data)
        step(world, data.draw(st.sampled_from([0, 1, 2, 100])))
        if data.draw(st.booleans()):
            starts(world)
    goes_on(world)
    job = world.job
    assert job is not None
    assert job.status.phase == "Succeeded"
    world.settle()
    assert not world.groups


def happens(world: GangSimulation, data: st.DataObject) -> None:
    """Disturb the job: a pod fails, ends or is deleted, or a group is deleted or pending again."""
    what = data.draw(st.sampled_from(["nothing", "fails", "ends", "deleted", "group deleted", "group out"]))
    names = sorted(world.pods)
    if what.startswith("group"):
        if world.groups:
            name = data.draw(st.sampled_from(sorted(world.groups)))
            if what == "group deleted":
                del world.groups[name]
            else:
                world.groups[name] = replace(world.groups[name], phase="Pending")
    elif names and what != "nothing":
        pod = world.pods[data.draw(st.sampled_from(names))]
        if what == "deleted":
            world.pods[pod.name] = replace(pod, deleting=True)
        elif pod.running and what == "fails":
            world.pods[pod.name] = replace(pod, phase="Failed", exit_code=137, reason="Error")
        elif pod.running:
            world.pods[pod.name] = replace(pod, phase="Succeeded", exit_code=0)


@pytest.mark.parametrize("scheduler", ["none", "volcano"])
def test_failed_worker_is_replaced_while_the_master_restarts(scheduler: str) -> None:
    tasks = {"Master": task(restartPolicy="OnFailure"), "Worker": task(2)}
    world = GangSimulation(
        manifest(tasks, restartScope="Task", schedulingPolicy={"gangScheduler": scheduler}),
        reservation=RESERVATION,
        settings=ReconcileSettings(admission_timeout=0.0),
    )
    for _ in range(5):
        step(world)
        starts(world)
    assert {pod.phase for pod in world.pods.values()} == {"Running"}
    for name in ("digits-master-0", "digits-worker-0"):
        world.pods[name] = replace(world.pods[name], phase="Failed", exit_code=137)
    for _ in range(4):
        step(world)
    assert len(world.pods) == 3
    assert not world.pods["digits-worker-0"].gated


def test_gang_in_backoff_keeps_its_groups_and_has_no_pods() -> None:
    described = manifest(
        {"Worker": task(2, restartPolicy="OnFailure")},
        schedulingPolicy={"gangScheduler": "volcano"},
        status=status("Running", admission=ADMISSION | {"gangScheduler": "volcano"}, consecutiveRestarts=2),
    )
    picked = replace(RESERVATION, charge=torchjob.parse(described).spec.charge)
    world = GangSimulation(described, reservation=picked, settings=ReconcileSettings(admission_timeout=600.0))
    for _ in range(4):
        step(world)
        starts(world)
    groups = dict(world.groups)
    assert (len(groups), [pod.phase for pod in world.pods.values()]) == (1, ["Running"] * 2)
    failed = world.pods["digits-worker-0"]
    world.pods[failed.name] = replace(failed, phase="Failed", exit_code=1)
    for _ in range(4):
        step(world)
        starts(world)
    assert (world.groups, world.pods) == (groups, {})
    planned = world.plan()
    assert planned.actions == ()
    assert planned.requeue_after is not None
    assert 10 < planned.requeue_after <= 20
    world.now += timedelta(seconds=planned.requeue_after)
    for _ in range(4):
        step(world)
        starts(world)
    assert (world.groups, [pod.phase for pod in world.pods.values()]) == (groups, ["Running"] * 2)
