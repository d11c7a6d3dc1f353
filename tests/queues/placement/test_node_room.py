"""The free amounts of nodes, and how many pods of a shape each node takes, after any changes."""

from collections.abc import Callable
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queues.placement import node_room
from queues.placement.assignment import assign
from queues.placement.gangs import Members, NodeSet, Shape
from queues.placement.node_room import NodeRoom
from tests.support.queues.clusters import room_of, shape

SHAPES = (shape(cpu=2), shape(gpu=1), shape("rack", cpu=1, gpu=2), shape("zone", memory=3), shape())
NODE = {"cpu": 8, "gpu": 4, "memory": 9, "pods": 6}


def test_what_is_free_is_capacity_less_what_is_used() -> None:
    room = room_of([NODE])
    room.use(0, shape(cpu=3, disk=1).demand, 2)
    assert room.free(0) == {"cpu": 2, "gpu": 4, "memory": 9, "pods": 4, "disk": -2}
    room.set_capacity(0, {"cpu": 5, "disk": 7, "pods": 6})
    assert {name: amount for name, amount in room.free(0).items() if amount} == {"cpu": -1, "pods": 4, "disk": 5}


def test_a_node_that_is_not_known_is_added_with_nothing_free_and_keeps_its_index() -> None:
    room = room_of([NODE])
    assert (room.index("new"), room.index("n0"), room.index("new"), room.names) == (1, 0, 1, ["n0", "new"])
    assert (room.free(1), room.total(SHAPES[0])) == ({}, 4)


def test_a_node_that_lacks_a_resource_takes_no_pod_that_asks_for_it() -> None:
    room = room_of([{"cpu": 8, "pods": 6}])
    assert (room.total(shape(gpu=1)), room.total(shape(cpu=8))) == (0, 1)


def test_a_node_that_is_used_beyond_its_capacity_takes_only_pods_that_ask_for_other_resources() -> None:
    room = room_of([NODE])
    room.use(0, (("cpu", 5),), 2)
    assert (room.total(shape(cpu=1)), room.total(shape(gpu=1))) == (0, 4)


def test_a_total_counts_the_nodes_of_a_set() -> None:
    room = room_of([NODE, NODE, {**NODE, "gpu": 1}])
    assert (room.total(shape(gpu=1)), room.total(shape(gpu=1), 0b101), room.total(shape(gpu=1), 0)) == (9, 5, 0)
    assert room.takes(shape(gpu=1)) == {4: 0b011, 1: 0b100}


def test_a_place_condition_is_resolved_once_until_sets_are_forgotten() -> None:
    asked, sets = [], {"rack": 0b01}

    def resolve(where: str) -> NodeSet:
        asked.append(where)
        return sets[where]

    room = NodeRoom(resolve)
    for name in ("a", "b"):
        room.set_capacity(room.index(name), NODE)
    bound, other = shape("rack", gpu=1), shape("rack", cpu=1)
    assert (room.takes(bound), room.total(other)) == ({4: 0b01}, 6)
    sets["rack"] = 0b10
    assert (room.takes(bound), asked) == ({4: 0b01}, ["rack"])
    room.forget_sets()
    assert (room.takes(bound), room.total(other), asked) == ({4: 0b10}, 6, ["rack", "rack"])


def test_a_copy_is_as_the_room_was_and_goes_its_own_way() -> None:
    room = room_of([NODE, {**NODE, "gpu": 1}], {"rack": 0b01})
    room.use(0, SHAPES[1].demand, 1)
    copied = room.copy()
    assert [copied.takes(one) for one in SHAPES] == [room.takes(one) for one in SHAPES]
    room.use(1, SHAPES[1].demand, 1)
    copied.use(0, SHAPES[1].demand, 2)
    copied.index("new")
    assert (room.takes(SHAPES[1]), copied.takes(SHAPES[1])) == ({3: 0b01}, {1: 0b11})
    assert (room.names, copied.names) == (["n0", "n1"], ["n0", "n1", "new"])


CHANGES: dict[str, Callable[[NodeRoom], object]] = {
    "use": lambda room: room.use(0, SHAPES[0].demand, 1),
    "row": lambda room: room.place_in_row(SHAPES[0], 1),
    "free": lambda room: room.use(0, SHAPES[0].demand, -1),
    "capacity": lambda room: room.set_capacity(0, {**NODE, "gpu": 1}),
    "sets": lambda room: room.forget_sets(),
    "node": lambda room: room.index("new"),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_the_version_rises_with_each_change(change: Callable[[NodeRoom], object]) -> None:
    room = room_of([NODE])
    before = room.version
    assert (room.total(SHAPES[0]), room.version) == (4, before)
    change(room)
    assert room.version > before


def test_the_part_that_a_pod_takes_of_the_largest_node_follows_the_capacities() -> None:
    room = room_of([NODE, {"cpu": 4, "gpu": 8, "pods": 6}])
    assert room.part_of_largest(shape(cpu=2, gpu=4)) == 0.5
    room.set_capacity(1, NODE)
    assert room.part_of_largest(shape(cpu=2, gpu=4)) == 1.0
    assert room.part_of_largest(shape(disk=1)) == float("inf")


def changed(room: NodeRoom, twin: NodeRoom, chance: Random, sets: dict[str, NodeSet]) -> None:
    """Change both rooms in the same way."""
    node, times, one = chance.randrange(5), chance.choice((-1, 1, 2)), chance.choice(SHAPES)
    kind = chance.choice(("use", "use", "use", "capacity", "sets"))
    capacity = {name: chance.randint(0, 9) for name in NODE}
    if kind == "sets":
        sets[chance.choice(("rack", "zone", ""))] = chance.choice((-1, chance.randrange(64)))
    for each in (room, twin):
        index = each.index(f"n{node}")
        if kind == "use":
            each.use(index, one.demand, times)
        elif kind == "capacity":
            each.set_capacity(index, capacity)
        else:
            each.forget_sets()


@given(st.randoms(use_true_random=False), st.integers(1, 120))
def test_what_is_kept_about_shapes_equals_what_is_made_anew(chance: Random, steps: int) -> None:
    """The twin is asked at the end alone. The room is asked about some shapes after some changes."""
    sets: dict[str, NodeSet] = {"rack": 0b1010, "zone": 0b0110, "": -1}
    room, twin = (NodeRoom(lambda where: sets[where]) for _ in range(2))
    gang = Members(SHAPES[0], 1), Members(SHAPES[2], 2)
    for _ in range(steps):
        changed(room, twin, chance, sets)
        if chance.random() < 0.4:
            room.total(chance.choice(SHAPES))
    for one in SHAPES:
        assert (room.takes(one), room.total(one)) == (twin.takes(one), twin.total(one))
        expected = sum(fit * bin(nodes).count("1") for fit, nodes in room.takes(one).items())
        assert room.total(one) == expected
    assert assign(room, gang) == assign(twin, gang)


def test_a_shape_that_is_not_asked_for_long_misses_no_change() -> None:
    room, one = room_of([NODE] * 3), SHAPES[1]
    assert room.total(one) == 12
    room.use(0, one.demand, 3)
    assert room.total(one) == 9
    room.use(0, (("gpu", 1),), 1)
    for _ in range(150):
        room.use(1, SHAPES[0].demand, 1)
        room.use(1, SHAPES[0].demand, -1)
    assert room.total(one) == 8


def test_a_shape_that_is_asked_for_after_every_third_change_misses_none() -> None:
    room, one, used = room_of([{**NODE, "gpu": 1_000, "pods": 1_000}] * 3), SHAPES[1], [0, 0, 0]
    for _ in range(200):
        for node in range(3):
            room.use(node, (("gpu", 1),), node + 1)
            used[node] += node + 1
        assert room.total(one) == 3_000 - sum(used)


def test_shapes_and_changes_are_kept_in_bounds() -> None:
    room = room_of([NODE] * 3)
    seldom, often = SHAPES[0], SHAPES[1]
    room.total(seldom)
    for number in range(3_000):
        room.use(number % 3, often.demand, 1)
        room.total(Shape((("cpu", number + 1), ("pods", 1)), f"condition {number}"))
        room.total(often)
    assert len(room._shapes) <= 2_048
    assert len(room._changed) <= 2 * 3 + 256
    assert (seldom in room._shapes, often in room._shapes) == (False, True)


@pytest.mark.parametrize(("nodes", "known"), [(10, True), (4_000, False)])
def test_a_thousand_shapes_are_looked_at_once_if_there_are_not_too_many_nodes(
    nodes: int, known: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    room = room_of([NODE] * nodes)
    room.allowed = lambda _: 1  # type: ignore[method-assign]  # one node is enough to see a look
    shapes = [shape(f"tenant {number}", cpu=1) for number in range(1_000)]
    for one in shapes:
        room.total(one)
    looks: list[object] = []
    monkeypatch.setattr(node_room, "count_fitting", lambda *asked: looks.append(asked) or 0)
    for one in shapes:
        room.total(one)
    assert bool(looks) == (not known)


def test_changes_are_kept_in_bounds_while_there_is_no_node() -> None:
    room = room_of([])
    for _ in range(1_000):
        room.forget_sets()
    assert len(room._changed) <= 256
