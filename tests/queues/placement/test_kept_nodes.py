"""Which nodes are kept for a gang, and for how long."""

from collections import Counter
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from queues.placement import kept_nodes
from queues.placement.assignment import assign
from queues.placement.gangs import Gang, Members, NodeSet, Shape
from queues.placement.kept_nodes import KeptNodes
from queues.placement.node_room import NodeRoom, set_of
from queues.placement.places import ExpectedEnd, Places
from tests.support.queues.clusters import room_of, shape

NODE = {"gpu": 8, "pods": 10}
WHOLE, HALF = shape(gpu=8), shape(gpu=4)
PAIR = (Members(WHOLE, 2),)
JOBS = {"a": (0, shape(gpu=4), 60.0), "b": (1, shape(gpu=4), 100.0), "c": (2, shape(gpu=8), 80.0)}
JOBS |= {"d": (3, shape(gpu=2), 1000.0)}


def places_of(room: NodeRoom, jobs: dict[str, tuple[int, Shape, float]]) -> Places:
    """Return the places of jobs of one pod each, by node, shape and expected end."""
    ends = sorted(ExpectedEnd(at, key) for key, (_, _, at) in jobs.items())
    places = Places(room, room_of([NODE] * 4), lambda *_: None, lambda _: ends)
    for key, (node, pod, _) in jobs.items():
        places.follow(key, Counter({(node, pod.demand): 1}), None, None)
    return places


@pytest.fixture
def places() -> Places:
    return places_of(room_of([NODE] * 4), JOBS)


def free(places: Places) -> list[int]:
    return [places.room.free(node)["gpu"] for node in range(4)]


def choose(places: Places, now: float = 0.0, before: NodeSet = 0) -> KeptNodes | None:
    return kept_nodes.choose(places, Gang(PAIR), places.ends(now), now, before)


def test_the_nodes_are_those_that_hold_the_gang_soonest(places: Places) -> None:
    assert choose(places) == KeptNodes(80.0, 0b0101)
    assert free(places) == [4, 4, 0, 6], "the search has changed what is free"


def test_a_gang_that_fits_now_is_held_now(places: Places) -> None:
    assert kept_nodes.choose(places, Gang((Members(HALF, 2),)), places.ends(0.0), 7.0) == KeptNodes(7.0, 0b0011)


def test_no_nodes_are_chosen_for_a_gang_that_no_nodes_ever_hold(places: Places) -> None:
    assert kept_nodes.choose(places, Gang((Members(WHOLE, 5),)), places.ends(0.0), 0.0) is None
    assert free(places) == [4, 4, 0, 6]


@pytest.mark.parametrize(("end", "kept"), [(70.0, 0b0110), (75.0, 0b0101)])
def test_other_nodes_are_kept_only_if_they_hold_the_gang_clearly_sooner(end: float, kept: NodeSet) -> None:
    late = JOBS | {"a": (0, shape(gpu=4), 90.0), "b": (1, shape(gpu=4), end), "c": (2, shape(gpu=8), 60.0)}
    found = choose(places_of(room_of([NODE] * 4), late), before=0b0101)
    assert found is not None
    assert found.nodes == kept


class Waiting:
    """A gang for which nodes are kept."""

    def __init__(self, places: Places) -> None:
        self.places, self.gang = places, Gang(PAIR)

    def keep(self, now: float) -> NodeSet:
        kept_nodes.keep(self.places, "big", self.gang, now, 30.0)
        return self.places.kept


def test_the_nodes_stay_for_one_patience_and_others_do_not_find_them(places: Places) -> None:
    waiting = Waiting(places)
    assert waiting.keep(0.0) == 0b0101
    assert not places.fits(Gang((Members(HALF, 3),)))
    assert places.fits(Gang((Members(HALF, 2),)))
    assert places.fits(Gang((Members(HALF, 3),)), on_kept=True)
    places.follow("d", Counter(), None, None)
    places.follow("b", Counter(), None, None)
    assert waiting.keep(29.0) == 0b0101
    assert waiting.keep(30.0) == 0b1010


def test_a_kept_node_that_takes_no_pods_any_more_is_replaced_at_once(places: Places) -> None:
    waiting = Waiting(places)
    waiting.keep(0.0)
    places.usable = 0b1110
    places.room.set_capacity(0, {})
    assert waiting.keep(1.0) == 0b0110


def test_no_nodes_are_kept_once_no_job_waits_for_them(places: Places) -> None:
    Waiting(places).keep(0.0)
    kept_nodes.keep(places, "", None, 1.0, 30.0)
    assert (places.kept, places.kept_for) == (0, None)


def test_others_wait_for_half_of_the_time_while_the_scheduler_binds_their_pods_to_kept_nodes(places: Places) -> None:
    waiting, small = Waiting(places), Gang((Members(shape(gpu=1), 1),))
    waiting.keep(0.0)
    went = []
    for second in range(1, 121):
        places.was_broken = True
        waiting.keep(float(second))
        went.append(places.fits(small))
    assert went[:30] == [False] * 30
    assert sum(went) == 60
    assert places.fits(small, on_kept=True)


def test_a_copy_holds_others_back_for_as_long(places: Places) -> None:
    waiting, small = Waiting(places), Gang((Members(shape(gpu=1), 1),))
    waiting.keep(0.0)
    places.was_broken = True
    waiting.keep(1.0)
    copied = places.copy()
    kept_nodes.keep(copied, "big", waiting.gang, 2.0, 30.0)
    assert not copied.fits(small)


@given(st.integers(0, 2**32))
@settings(max_examples=200)
def test_the_moment_is_the_first_at_which_the_gang_finds_nodes(seed: int) -> None:
    random = Random(seed)
    pods = [shape(gpu=random.randint(1, 3), cpu=random.choice([1, 1, 2])) for _ in range(random.randint(0, 8))]
    jobs = {f"job-{number}": (random.randrange(4), pod, float(number)) for number, pod in enumerate(pods)}
    nodes = [{"gpu": random.choice([4, 8]), "cpu": random.choice([2, 8]), "pods": 10} for _ in range(4)]
    gang = Gang(
        tuple(
            Members(shape(gpu=random.randint(1, 4), cpu=random.randint(1, 4)), random.randint(1, 3))
            for _ in range(random.choice([1, 1, 2]))
        )
    )
    places = places_of(room_of(nodes), jobs)
    before = [dict(places.room.free(node)) for node in range(4)]
    found = kept_nodes.choose(places, gang, places.ends(0.0), -1.0)
    assert [dict(places.room.free(node)) for node in range(4)] == before
    moments = []
    for key, (node, pod, at) in [("", (0, shape(), -1.0)), *jobs.items()]:
        if key:
            places.room.use(node, pod.demand, -1)
        if (assigned := assign(places.room, gang.members)) is not None:
            moments.append(KeptNodes(at, set_of({node for node, _, _ in assigned})))
    assert found == (moments[0] if moments else None)
