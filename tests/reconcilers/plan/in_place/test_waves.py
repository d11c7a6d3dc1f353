"""Whether a gang keeps its room over a restart that replaces its pods, while a foreign gang waits for room."""

from dataclasses import replace
from typing import Any

import pytest

from crds.api_resources import ALPHA_POD_GROUPS, NATIVE_POD_GROUPS
from crds.torchjob import torchjob
from reconcilers.plan.in_place import waves
from reconcilers.settings import ReconcileSettings
from tests.support.reconcilers.builders import RESERVATION, manifest, task
from tests.support.reconcilers.gang_simulation import SharedRoom

SCHEDULERS = ["volcano", "coscheduling", "kubernetes", "kubernetes 1.36", "koordinator"]
TRAINER = {"Master": task(restartPolicy="OnFailure"), "Worker": task(7, restartPolicy="OnFailure")}


def running(scheduler: str, tasks: dict[str, Any], waiting: int, **spec: Any) -> SharedRoom:
    """Return a running job that fills its cluster, for which a foreign gang waits."""
    named, *version = scheduler.split()
    described = manifest(tasks, schedulingPolicy={"gangScheduler": named}, **spec)
    served = frozenset({ALPHA_POD_GROUPS if version else NATIVE_POD_GROUPS})
    size = sum(each["numTasks"] for each in tasks.values())
    world = SharedRoom(
        described,
        reservation=replace(RESERVATION, charge=torchjob.parse(described).spec.charge),
        settings=ReconcileSettings(served=served),
        room=size,
        fewest=size,
    )
    until_it_runs(world)
    world.waiting, world.fewest = waiting, size
    return world


def until_it_runs(world: SharedRoom) -> int:
    """Return the number of seconds until the job runs with all of its pods, at most 300."""
    for seconds in range(300):
        job, pods = world.job, world.pods.values()
        assert job is not None
        if job.status.phase == "Running" and len(pods) == world.room and all(pod.running for pod in pods):
            return seconds
        world.turn()
    return 300


def fail(world: SharedRoom, name: str) -> None:
    world.pods[name] = replace(world.pods[name], phase="Failed", exit_code=137)


@pytest.mark.parametrize("scheduler", SCHEDULERS)
@pytest.mark.parametrize("name", ["digits-worker-3", "digits-master-0"])
def test_gang_that_restarts_keeps_its_room(scheduler: str, name: str) -> None:
    world = running(scheduler, TRAINER, waiting=2)
    fail(world, name)
    world.turn()
    assert until_it_runs(world) < 60
    assert (world.taken, world.fewest) == (0, world.room - 1)
    job = world.job
    assert job is not None
    assert (job.status.restart_count, job.status.disruptions) == (1, 0)
    assert {pod.restart for pod in world.pods.values()} == {job.status.restart_generation}


@pytest.mark.proof
def test_large_gang_restarts_in_few_waves() -> None:
    world = running("volcano", {"Master": task(restartPolicy="OnFailure"), "Worker": task(255)}, waiting=33)
    fail(world, "digits-master-0")
    world.turn()
    assert until_it_runs(world) < 60
    assert (world.taken, world.fewest) == (0, 256 - 32)


@pytest.mark.parametrize(
    ("tasks", "spec"),
    [
        ({"Worker": task(8, restartPolicy="OnFailure")}, {}),  # none of its pods has a gate
        ({**TRAINER, "Worker": task(7, dependsOn=[])}, {}),
    ],
)
def test_gang_without_gates_may_lose_its_room(tasks: dict[str, Any], spec: dict[str, Any]) -> None:
    world = running("volcano", tasks, waiting=8, **spec)
    fail(world, "digits-worker-0")
    world.turn()
    assert until_it_runs(world) == 300
    assert world.taken == 8


def test_pods_that_have_no_nodes_in_time_keep_nobody_waiting() -> None:
    world = running("volcano", TRAINER, waiting=1)
    fail(world, "digits-worker-3")
    world.turn()
    assert world.taken == 1
    for _ in range(int(waves.LONGEST) - 3):
        world.turn()
    assert sum(pod.restart == 0 for pod in world.pods.values()) == 7, "the old pods hold the room of the gang"
    for _ in range(5):
        world.turn()
    assert not any(pod.restart == 0 for pod in world.pods.values())
