"""The order in which nodes are best for a pod, and which assignment a gang gets by it."""

from collections import Counter
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queues.placement import assignment
from queues.placement.gangs import EVERY, Gang, Members
from queues.placement.gradient import Gradient
from queues.placement.node_room import NodeRoom
from queues.placement.places import Places
from queues.placement.typical_pods import TypicalPods, typical_of
from tests.support.queues.clusters import RESOURCES, cluster_by_chance, room_of, shape

GPU = "example.org/gpu"
SMALL, WHOLE = shape(cpu=4, **{GPU: 1}), shape(cpu=32, **{GPU: 8})


def node(gpus: int, cpu: int) -> dict[str, int]:
    return {GPU: gpus, "cpu": cpu, "pods": 20}


NODES = [node(8, 64), node(3, 64), node(3, 7)]


@pytest.fixture
def typical() -> TypicalPods:
    """Return three small pods for each that takes a whole node."""
    found = typical_of({SMALL.demand: 3, WHOLE.demand: 1})
    assert found is not None
    return found


def test_the_growth_of_what_is_unusable_is_that_of_the_worked_example(typical: TypicalPods) -> None:
    gradient = Gradient(room_of(NODES), typical)
    assert [gradient.growth(free, SMALL) for free in NODES] == [16 * growth for growth in (7, -1, 5)]
    assert list(gradient.ranked(SMALL)) == [((-16, 3), 0b010), ((80, 1), 0b100), ((112, 8), 0b001)]
    assert assignment.place(room_of(NODES), None, (Members(SMALL, 1),)) == ((2, SMALL, 1),)


def test_pods_of_any_gang_spare_whole_nodes_and_the_last_cpus_beside_gpus(typical: TypicalPods) -> None:
    room = room_of(NODES)
    gradient = Gradient(room, typical)
    assert assignment.place(room, gradient, (Members(SMALL, 4),)) == ((1, SMALL, 3), (2, SMALL, 1))
    mixed = Members(SMALL, 2), Members(shape(cpu=1, **{GPU: 2}), 1)
    placed = assignment.place(room, gradient, mixed)
    assert placed is not None
    assert not any(place[0] == 0 for place in placed)
    assert sum(count for _, _, count in placed) == 3
    assert assignment.place(room, gradient, (Members(WHOLE, 2),)) is None


def test_places_are_chosen_by_the_typical_pods_also_in_a_copy(typical: TypicalPods) -> None:
    places = Places(room_of(NODES), room_of(NODES), lambda *_: None)
    places.set_typical(typical)
    copied = places.copy()
    for each in (places, copied):
        each.take("one", Gang((Members(SMALL, 1),)))
        assert [each.room.free(number)[GPU] for number in range(3)] == [8, 2, 3]
    places.set_typical(None)
    places.take("two", Gang((Members(SMALL, 1),)))
    assert [places.room.free(number)[GPU] for number in range(3)] == [8, 2, 2]


def by_chance(chance: Random) -> TypicalPods:
    """Return pods that ask for some cpu each."""
    pods = {shape(**{name: chance.randint(1, 9) for name in ("cpu", *RESOURCES[1:])}).demand: 1 for _ in range(9)}
    found = typical_of({**pods, shape(cpu=64).demand: 1})
    assert found is not None
    return found


def test_an_assignment_is_found_where_there_is_one_and_holds() -> None:
    chance, outcomes = Random(4), Counter[tuple[bool, bool]]()
    for number in range(600):
        cluster = cluster_by_chance(chance, most_kinds=1 + number % 3)
        room, within = cluster.room, chance.choice((EVERY, chance.getrandbits(4)))
        found = assignment.place(room, Gradient(room, by_chance(chance)), cluster.members, within)
        assert (found is not None) == assignment.fits(room, cluster.members, within), cluster
        assert found is None or not cluster.objection(found), cluster
        assert all(within >> place[0] & 1 for place in found or ())
        outcomes[found is None, len(cluster.members) > 1] += 1
    assert min(outcomes.values()) > 50


def _change(room: NodeRoom, chance: Random, allowed: dict[str, int]) -> None:
    match chance.randrange(12):
        case 0:
            room.set_capacity(room.index(f"new{room.version}"), {"cpu": chance.randint(0, 90), "pods": 9})
        case 1:
            allowed["some"] = chance.getrandbits(6)
            room.forget_sets()
        case _:
            demand = shape(cpu=chance.randint(1, 9)).demand
            room.use(chance.randrange(len(room.names)), demand, chance.choice((-1, 1, 2)))


@given(st.randoms(use_true_random=False))
def test_the_order_after_changes_is_that_of_a_room_that_is_looked_at_for_the_first_time(chance: Random) -> None:
    allowed, typical = {"some": 0b101}, by_chance(chance)
    room = NodeRoom(lambda where: allowed.get(where, -1))
    for number in range(4):
        room.set_capacity(room.index(f"n{number}"), {"cpu": chance.randint(1, 90), "pods": 9})
    gradient, shapes = Gradient(room, typical), [shape(cpu=4), shape("some", cpu=4), shape("some", cpu=30)]
    for _ in range(30):
        _change(room, chance, allowed)
        one = chance.choice(shapes)
        assert list(gradient.ranked(one)) == list(Gradient(room, typical).ranked(one))
