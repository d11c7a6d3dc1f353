"""Which nodes the pods of a gang get; on small clusters as an exhaustive search says."""

from collections import Counter
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queues.placement.assignment import assign, count_placed, fits
from queues.placement.gangs import Members, NodeSet, Shape
from queues.placement.node_room import NodeRoom
from tests.support.queues.clusters import cluster_by_chance, room_of, shape

ONE_GPU, FOUR_GPUS, NO_GPU = shape(gpu=1, cpu=1), shape(gpu=4, cpu=4), shape(cpu=2)
NODE = {"cpu": 16, "gpu": 8, "pods": 10}
HUGE = 10**18


def by_node(room: NodeRoom, *members: Members, within: NodeSet = -1) -> dict[int, list[tuple[Shape, int]]] | None:
    """Return what each node gets of a gang."""
    found = assign(room, members, within)
    if found is None:
        return None
    nodes: dict[int, list[tuple[Shape, int]]] = {}
    for node, one, count in found:
        nodes.setdefault(node, []).append((one, count))
    return nodes


def test_alike_pods_fill_the_nodes_that_take_the_fewest_the_lowest_first() -> None:
    room = room_of([NODE, {**NODE, "gpu": 2}, {**NODE, "gpu": 3}, {**NODE, "gpu": 2}])
    assert assign(room, (Members(ONE_GPU, 6),)) == ((1, ONE_GPU, 2), (3, ONE_GPU, 2), (2, ONE_GPU, 2))


def test_a_pod_that_no_node_has_room_for_is_refused_though_the_sum_has() -> None:
    room = room_of([{**NODE, "gpu": 2}] * 8)
    assert assign(room, (Members(FOUR_GPUS, 1),)) is None
    assert not fits(room, (Members(FOUR_GPUS, 1),))


def test_members_that_each_find_room_alone_but_not_together_are_refused() -> None:
    members = Members(FOUR_GPUS, 2), Members(ONE_GPU, 1)
    assert all(fits(room_of([NODE]), (one,)) for one in members)
    assert not fits(room_of([NODE]), members)


def test_the_larger_pods_of_a_gang_are_placed_first() -> None:
    room = room_of([{**NODE, "gpu": 4}, {**NODE, "gpu": 5}])
    assert by_node(room, Members(ONE_GPU, 5), Members(FOUR_GPUS, 1)) == {0: [(FOUR_GPUS, 1)], 1: [(ONE_GPU, 5)]}


def test_only_nodes_of_the_set_are_given() -> None:
    room = room_of([NODE] * 3)
    assert by_node(room, Members(FOUR_GPUS, 2), within=0b100) == {2: [(FOUR_GPUS, 2)]}
    assert by_node(room, Members(FOUR_GPUS, 3), within=0b100) is None
    assert by_node(room, Members(FOUR_GPUS, 1), Members(NO_GPU, 1), within=0b010) == {1: [(FOUR_GPUS, 1), (NO_GPU, 1)]}
    assert not fits(room, (Members(FOUR_GPUS, 2), Members(ONE_GPU, 1)), within=0b010)


def test_a_place_condition_holds_for_each_member_alone() -> None:
    room = room_of([NODE, NODE], {"second": 0b10})
    bound = shape("second", cpu=2)
    assert by_node(room, Members(bound, 1), Members(FOUR_GPUS, 2)) == {0: [(FOUR_GPUS, 2)], 1: [(bound, 1)]}


def test_the_order_of_members_and_how_they_are_split_change_nothing() -> None:
    room = room_of([NODE, {**NODE, "gpu": 4}, {**NODE, "gpu": 6}])
    whole = assign(room, (Members(FOUR_GPUS, 3), Members(ONE_GPU, 2)))
    assert whole is not None
    split = (Members(ONE_GPU, 1), Members(FOUR_GPUS, 3), Members(ONE_GPU, 1))
    assert assign(room_of([NODE, {**NODE, "gpu": 4}, {**NODE, "gpu": 6}]), split) == whole
    assert assign(room, (Members(ONE_GPU, 1), Members(ONE_GPU, 1))) == assign(room, (Members(ONE_GPU, 2),))


@pytest.mark.parametrize("members", [(), (Members(ONE_GPU, 0),), (Members(ONE_GPU, 0), Members(NO_GPU, 0))])
def test_a_gang_without_pods_fits_everywhere(members: tuple[Members, ...]) -> None:
    room = room_of([NODE])
    assert (assign(room, members), fits(room, members), count_placed(room, members)) == ((), True, 0)


def test_amounts_as_large_as_can_be_are_exact() -> None:
    node = {"memory": HUGE, "pods": HUGE}
    most, third = shape(memory=HUGE), shape(memory=HUGE // 3 + 1)
    assert by_node(room_of([node] * 2), Members(third, 4)) == {0: [(third, 2)], 1: [(third, 2)]}
    assert not fits(room_of([node]), (Members(third, 3),))
    assert not fits(room_of([{**node, "memory": HUGE - 1}]), (Members(most, 1),))
    assert room_of([node] * 2).total(shape()) == 2 * HUGE


def test_the_pods_that_find_a_node_are_counted_for_a_gang_that_does_not_fit() -> None:
    room = room_of([{**NODE, "gpu": 4}, {**NODE, "gpu": 2}])
    assert count_placed(room, (Members(FOUR_GPUS, 4),)) == 1
    assert count_placed(room, (Members(FOUR_GPUS, 2), Members(ONE_GPU, 2))) == 3
    assert count_placed(room, (Members(FOUR_GPUS, 1), Members(ONE_GPU, 2))) == 3


def test_an_answer_is_not_kept_beyond_a_change() -> None:
    room = room_of([NODE])
    gang = Members(FOUR_GPUS, 1), Members(ONE_GPU, 4)
    assert fits(room, gang)
    room.use(0, FOUR_GPUS.demand, 1)
    assert not fits(room, gang)
    room.use(0, ONE_GPU.demand, 1)
    assert not fits(room, gang)
    room.use(0, FOUR_GPUS.demand, -1)
    room.use(0, ONE_GPU.demand, -1)
    assert fits(room, gang)
    room.set_capacity(0, {**NODE, "gpu": 7})
    assert not fits(room, gang)
    room.set_capacity(0, NODE)
    assert fits(room, gang)
    room.use(0, ONE_GPU.demand, 1)
    assert not fits(room, gang)
    room.set_capacity(room.index("new"), NODE)
    assert fits(room, gang)


HARD = {
    "the largest first takes the larger node": (
        [{"cpu": 8}, {"cpu": 5}],
        (Members(shape(cpu=5), 1), Members(shape(cpu=4), 2)),
    ),
    "alike pods share a node": (
        [{"cpu": 4, "pods": 2}, {"cpu": 2, "pods": 4}],
        (Members(shape(cpu=2), 2), Members(shape(cpu=1), 2)),
    ),
    "a node in vain is not the next one": (
        [{"cpu": 6, "gpu": 9, "pods": 2}, {"cpu": 7, "gpu": 11, "pods": 3}],
        (Members(shape(cpu=2, gpu=4), 3), Members(shape(cpu=3, gpu=3), 2)),
    ),
    "equal nodes differ for a place condition": (
        [{"cpu": 6, "pods": 1}, {"cpu": 2, "pods": 2}, {"pods": 4}, {"cpu": 6, "pods": 1}],
        (Members(shape(), 2), Members(shape("zone", cpu=6), 1), Members(shape(cpu=2), 1), Members(shape(cpu=6), 1)),
    ),
}


@pytest.mark.parametrize(("nodes", "members"), HARD.values(), ids=HARD)
def test_a_search_finds_what_no_order_by_best_fit_finds(
    nodes: list[dict[str, int]], members: tuple[Members, ...]
) -> None:
    assert fits(room_of([{"pods": 9, **node} for node in nodes], {"zone": 0b0011}), members)


def test_a_search_ends_where_it_could_go_on_almost_without_end() -> None:
    """Each kind of pod alone finds room, no node can be filled without a rest, and no two nodes or pods are alike."""
    room = room_of([{"cpu": 100 + node, "pods": 40} for node in range(11)])
    members = tuple(Members(shape(cpu=38 + number), 3) for number in range(11))
    assert not fits(room, members)


def test_members_that_are_as_large_as_each_other_have_an_order_of_their_own() -> None:
    nodes = [{"cpu": 16, "gpu": 8, "pods": 1}, {"cpu": 16, "gpu": 8, "pods": 1}]
    members = Members(shape(gpu=4), 1), Members(shape(cpu=8), 1)
    assert assign(room_of(nodes), members) == assign(room_of(nodes), members[::-1]) is not None


def test_alike_pods_are_decided_as_an_exhaustive_search_does() -> None:
    chance, outcomes = Random(1), Counter[bool]()
    for _ in range(1_000):
        cluster = cluster_by_chance(chance, most_kinds=1)
        found = assign(cluster.room, cluster.members)
        assert (found is not None) == cluster.has_assignment(), cluster
        assert found is None or not cluster.objection(found), cluster
        outcomes[found is None] += 1
    assert min(outcomes.values()) > 100


def test_of_mixed_gangs_that_fit_at_most_one_in_a_hundred_is_refused() -> None:
    chance, outcomes = Random(2), Counter[bool]()
    for _ in range(2_000):
        cluster = cluster_by_chance(chance)
        found = assign(cluster.room, cluster.members)
        if found is not None:
            assert not cluster.objection(found), cluster
        if len(cluster.members) > 1 and (found is not None or cluster.has_assignment()):
            outcomes[found is not None] += 1
    assert outcomes[True] > 500
    assert outcomes[False] <= outcomes.total() / 100


@given(st.randoms(use_true_random=False), st.integers(0, 15))
def test_what_is_counted_as_placed_is_what_can_be_placed(chance: Random, within: NodeSet) -> None:
    cluster = cluster_by_chance(chance)
    room, pods = cluster.room, len(cluster.pods)
    found = assign(room, cluster.members, within)
    assert fits(room, cluster.members, within) == (found is not None)
    assert (count_placed(room, cluster.members, within) == pods) == (found is not None)
    assert found is None or not cluster.objection(found)
    assert all(within >> node & 1 for node, _, _ in found or ())
