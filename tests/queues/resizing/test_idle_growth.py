"""Growth into idle room: the loop of growth, the room that growth leaves, and the time for which room must have been
idle.
"""

from dataclasses import replace

import pytest

from queues.placement.gangs import Gang, Members
from queues.placement.places import Places
from queues.resizing.values import ElasticJob, Plan
from queues.values import QueueSpec
from tests.support.clock import START
from tests.support.queues.builders import GPU, entry, key, specs
from tests.support.queues.clusters import room_of, shape
from tests.support.queues.elastic_scene import Scene, elastic, with_gpus

A, B = specs(a=1, b=1)
CPU = elastic("cpu", "c", workers=4, unit={"cpu": 1}, busy="Restarting")


def scene(pool: int, *jobs: ElasticJob, queues: tuple[QueueSpec, ...] = (A, B), **more: object) -> Scene:
    """Return a pool with elastic jobs."""
    return replace(Scene(queues=queues, pool={GPU: pool}, jobs=jobs), **more)  # type: ignore[arg-type]


def kept(plan: Plan) -> dict[str, str]:
    """Return the codes of the jobs that a plan does not resize."""
    return {each.key.name: each.code for each in plan.kept}


def test_worked_table() -> None:
    x = elastic("x", workers=2, least=2, most=6)
    y = elastic("y", workers=1, least=1, most=3, unit={GPU: 2})
    z = elastic("z", workers=3, least=1, most=4)
    assert scene(12, x, y, z).sizes() == {"x": 5, "y": 2}


def test_older_job_grows_first() -> None:
    assert scene(9, elastic("new", submitted=START + 1), elastic("old")).sizes() == {"old": 5}


def test_steps_are_whole_and_end_at_the_most() -> None:
    job = elastic("job", workers=4, least=1, most=9, step=3)
    assert scene(99, job).sizes() == {"job": 7}
    assert scene(6, job).sizes() == {}


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"autoscale": False}, "Off"),
        ({"busy": "Restarting"}, "Restarting"),
        ({"resting_until": START + 1}, "Resting"),
        ({"wanted": 5}, "BelowWish"),
        ({"most": 4}, "AtMost"),
        ({"leaving": 1}, "Leaving"),
        ({"idle_seconds": 1.0}, "NotIdleYet"),
    ],
)
def test_job_that_does_not_grow_says_why(change: dict[str, object], code: str) -> None:
    plan = scene(8, replace(elastic("job"), **change)).plan(with_kept=True)  # type: ignore[arg-type]
    assert plan.resizes == ()
    assert kept(plan) == {"job": code}


def test_job_of_a_held_queue_does_not_grow() -> None:
    plan = scene(8, elastic("job"), queues=(replace(A, open=False),)).plan(with_kept=True)
    assert (plan.resizes, kept(plan)) == ((), {"job": "QueueHeld"})


# The room that growth leaves


def test_growth_stays_within_the_quota() -> None:
    assert scene(99, elastic("job"), queues=(with_gpus("a", 6),)).sizes() == {"job": 6}


@pytest.mark.parametrize(("borrowing", "size"), [({}, 7), ({GPU: 1}, 6)])
def test_growth_leaves_what_a_cohort_claims(borrowing: dict[str, int], size: int) -> None:
    """Queue b claims 3 of the 6 free GPUs, but the pool lacks another resource for its job."""
    queues = with_gpus("a", 5, cohort="all", borrowing=borrowing), with_gpus("b", 5, cohort="all"), *specs(c=1)
    waiting = [entry("claim", "b", gpu=3, cpu=9)]
    full = scene(99, elastic("job"), CPU, queues=queues, waiting=waiting)
    assert replace(full, pool={GPU: 99, "cpu": 9}).sizes() == {"job": size}


@pytest.mark.parametrize(("reserved", "sizes"), [("", {"job": 8, "cpu": 8}), ("b", {"job": 5})])
def test_growth_leaves_the_reserved_room(reserved: str, sizes: dict[str, int]) -> None:
    free = replace(CPU, busy="", idle=0)
    held = scene(10, elastic("job"), free, queues=(*specs(a=1, b=1, c=1),), waiting=[entry("head", "b", gpu=5, cpu=9)])
    assert replace(held, pool={GPU: 10, "cpu": 9}, reserved=reserved).sizes() == sizes


def test_growth_leaves_the_room_of_workers_that_have_not_ended() -> None:
    leaving = elastic("leaving", "b", workers=6, leaving=3)
    assert scene(10, elastic("job"), leaving).sizes() == {}
    assert scene(12, elastic("job"), leaving).sizes() == {"job": 6}


def test_growth_leaves_the_room_that_is_given_back() -> None:
    """The head lacks 2 GPUs. The giver gives its borrowed room, and the 1 free GPU does not go to the other job."""
    giver = elastic("giver", "a", workers=6, idle=4, most=6)
    waiting = [entry("head", "b", gpu=3)]
    assert scene(11, giver, elastic("job", "b"), waiting=waiting).sizes() == {"giver": 4}


def test_nothing_grows_while_a_waiting_job_fits() -> None:
    """A round may end before everything is picked."""
    fits = scene(20, elastic("job"), waiting=[entry("small", "b", gpu=1)])
    snapshot_only = fits.picker()
    assert snapshot_only.queues(START)["b"].first is None
    plan = fits.unpicked_plan()
    assert (plan.resizes, kept(plan)) == ((), {"job": "JobsFit"})


# The time for which room must have been idle


def test_room_must_have_been_idle_for_long_enough() -> None:
    jobs = elastic("soon", idle_seconds=10.0), elastic("late", idle_seconds=50.0)
    first = scene(12, *jobs)
    plan = first.plan(START)
    plan = replace(first, rigid={"b": 3}).plan(START + 5, plan.idle_since)
    assert plan.resizes == ()
    [grown] = replace(first, rigid={"b": 3}).plan(START + 12, plan.idle_since).resizes
    assert (grown.key, grown.workers, grown.reason) == (key("soon"), 5, "Idle")
    plan = first.plan(START + 13, plan.idle_since)
    assert [resize.workers for resize in first.plan(START + 22.9, plan.idle_since).resizes] == [5]
    assert [resize.workers for resize in first.plan(START + 23, plan.idle_since).resizes] == [8]
    assert len(first.plan(START + 55, plan.idle_since).resizes) == 2


def test_room_that_was_used_for_a_moment_begins_anew() -> None:
    empty = scene(8, elastic("job", idle_seconds=10.0))
    since = empty.plan(START).idle_since
    since = replace(empty, rigid={"b": 4}).plan(START + 9, since).idle_since
    assert empty.plan(START + 11, since).resizes == ()


def test_resting_and_busy_jobs_still_see_the_room_become_idle() -> None:
    jobs = elastic("busy", idle_seconds=10.0, busy="Scaling"), elastic("job", resting_until=START + 9, idle_seconds=10)
    since = scene(10, *jobs).plan(START).idle_since
    later = scene(10, replace(jobs[0], busy=""), jobs[1])
    assert len(later.plan(START + 10, since).resizes) == 2


@pytest.mark.parametrize(("free", "grown"), [((4, 0), 8), ((3, 0), 7), ((1, 1), 6)])
def test_growth_needs_nodes_for_its_workers(free: tuple[int, int], grown: int) -> None:
    worker = shape(**{GPU: 1})
    room = room_of([{GPU: amount, "pods": 10} for amount in free])
    places = Places(room, room.copy(), lambda *_: Gang((Members(worker, 1),), worker))
    scene = Scene(queues=[QueueSpec(name="a")], pool={GPU: 8}, jobs=[elastic("x")], places=places)
    assert scene.sizes() == {"x": grown}


def test_growth_without_nodes_says_that_there_are_none() -> None:
    worker = shape(**{GPU: 1})
    room = room_of([{"cpu": 8, "pods": 10}])
    places = Places(room, room.copy(), lambda *_: Gang((Members(worker, 1),), worker))
    scene = Scene(queues=[QueueSpec(name="a")], pool={GPU: 8}, jobs=[elastic("x")], places=places)
    assert [kept.code for kept in scene.plan(with_kept=True).kept] == ["NoNodes"]
