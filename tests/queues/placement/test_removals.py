"""The pods that leave their nodes for a gang: enough, and the fewest, as a search over all sets says."""

from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import combinations
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queues.placement import assignment, removals
from queues.placement.gangs import EVERY, Members, NodeSet
from queues.placement.node_room import NodeRoom
from queues.placement.removals import Leaver
from tests.support.queues.clusters import room_of, shape

ONE, WHOLE = shape(gpu=1), shape(gpu=8)
NODE = {"gpu": 8, "pods": 10}


def filled(free: list[int], leavers: Iterable[Leaver]) -> NodeRoom:
    """Return nodes with some free GPUs beside these pods."""
    room = room_of([NODE] * len(free))
    own = Counter[int]()
    for leaver in leavers:
        room.use(leaver.node, leaver.demand, 1)
        own[leaver.node] += dict(leaver.demand)["gpu"]
    for node, most in enumerate(free):
        if own[node] + most < NODE["gpu"]:
            room.use(node, (("gpu", NODE["gpu"] - own[node] - most),), 1)
    return room


def ones(*nodes: int, owner: int = 0) -> list[Leaver]:
    return [Leaver(node, ONE.demand, owner) for node in nodes]


def test_pods_leave_one_node_and_not_several() -> None:
    spread = ones(*range(8))
    assert removals.find(filled([0] * 8, spread), (Members(WHOLE, 1),), EVERY, spread, {0: 8}) is None
    leavers = [*spread, *ones(*[3] * 7, owner=1)]
    found = removals.find(filled([0] * 8, leavers), (Members(WHOLE, 1),), EVERY, leavers, {0: 8, 1: 7})
    assert found is not None
    assert {leavers[index].node for index in found} == {3}
    assert removals.find(filled([0] * 8, leavers), (Members(WHOLE, 1),), EVERY, leavers, {0: 8, 1: 6}) is None


def test_of_equal_nodes_the_preferred_ones_are_freed() -> None:
    leavers = ones(0, 0, 1, 1)
    room = filled([6, 6], leavers)
    assert removals.find(room, (Members(WHOLE, 1),), EVERY, leavers, {0: 4}) == [0, 1]
    assert removals.find(room, (Members(WHOLE, 1),), EVERY, leavers, {0: 4}, preferred=0b10) == [2, 3]
    assert removals.find(room, (Members(WHOLE, 1),), 0b10, leavers, {0: 4}) == [2, 3]


def test_where_pods_differ_the_node_is_freed_that_takes_the_fewest() -> None:
    leavers = ones(*[0] * 8, *[1] * 4)
    gang = (Members(WHOLE, 1), Members(shape(gpu=2), 1))
    found = removals.find(filled([0, 4, 2], leavers), gang, EVERY, leavers, {0: 12})
    assert found == [8, 9, 10, 11]


def test_a_node_counts_that_takes_two_pods_at_a_lower_price_than_one() -> None:
    leavers = [Leaver(0, shape(gpu=2).demand, 0) for _ in range(3)]
    assert removals.find(filled([0], leavers), (Members(shape(gpu=3), 2),), EVERY, leavers, {0: 3}) == [0, 1, 2]


def test_many_pods_are_freed_without_a_look_at_every_sum() -> None:
    leavers = ones(*(node for node in range(300) for _ in range(4)))
    found = removals.find(filled([4] * 300, leavers), (Members(WHOLE, 256),), EVERY, leavers, {0: 1_200})
    assert found is not None
    assert len(found) == 1_024


def is_enough(
    free: list[int], leavers: list[Leaver], gone: Iterable[int], gang: tuple[Members, ...], within: NodeSet
) -> bool:
    room = filled(free, leavers)
    for index in gone:
        room.use(leavers[index].node, leavers[index].demand, -1)
    return assignment.fits(room, gang, within)


def keeps_limits(leavers: list[Leaver], gone: Iterable[int], most: Mapping[int, int]) -> bool:
    counts = Counter(leavers[index].owner for index in gone)
    return all(counts[owner] <= most.get(owner, 0) for owner in counts)


@given(st.integers(0, 2**32))
def test_on_small_clusters_no_fewer_alike_pods_would_do(seed: int) -> None:
    random = Random(seed)
    nodes = random.randint(1, 4)
    leavers = [
        Leaver(random.randrange(nodes), shape(gpu=random.choice([1, 1, 2])).demand, random.randrange(2))
        for _ in range(random.randint(1, 8))
    ]
    used = Counter[int]()
    for leaver in leavers:
        used[leaver.node] += dict(leaver.demand)["gpu"]
    free = [random.randint(0, max(0, 8 - used[node])) for node in range(nodes)]
    gang = (Members(shape(gpu=random.choice([1, 2, 3, 4, 8])), random.randint(1, 3)),)
    within = random.choice([EVERY, EVERY, 0b0101])
    most = {owner: random.choice([0, 8, 8, random.randint(1, 7)]) for owner in range(2)}
    room = filled(free, leavers)
    before = [dict(room.free(node)) for node in range(nodes)]
    found = removals.find(room, gang, within, leavers, most)
    assert [room.free(node) for node in range(nodes)] == before, "the search has changed what is free"
    sets = (each for size in range(len(leavers) + 1) for each in combinations(range(len(leavers)), size))
    least = next(
        (each for each in sets if keeps_limits(leavers, each, most) and is_enough(free, leavers, each, gang, within)),
        None,
    )
    are_free = all(most[owner] in (0, 8) for owner in range(2))
    if found is None:
        assert least is None or not are_free
        return
    assert keeps_limits(leavers, found, most)
    assert is_enough(free, leavers, found, gang, within)
    assert least is not None
    assert len(found) == len(least) or not are_free


def test_a_gang_of_different_pods_is_placed_a_few_times_however_many_pods_may_leave(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    leavers = ones(*(node for node in range(250) for _ in range(4)))
    room, gang = filled([0] * 250, leavers), tuple(Members(shape(gpu=gpu), 32) for gpu in (1, 2, 4))
    asked, fits = Counter[tuple[Members, ...]](), assignment.fits
    monkeypatch.setattr(assignment, "fits", lambda *given: asked.update([given[1]]) or fits(*given))  # type: ignore[func-returns-value]
    found = removals.find(room, gang, EVERY, leavers, {0: 1_000})
    assert found is not None
    assert len(found) == 32 * (1 + 2 + 4)
    assert asked.total() == 1


def test_pods_of_a_large_gang_leave_only_if_the_gang_finds_nodes_then() -> None:
    several = 0
    for seed in range(20):
        random = Random(seed)
        free = [random.randint(0, 4) for _ in range(random.randint(30, 60))]
        leavers = [
            Leaver(node, shape(gpu=random.choice([1, 1, 2])).demand, 0) for node in range(len(free)) for _ in range(4)
        ]
        gang = tuple(Members(shape(gpu=gpu), random.randint(8, 25)) for gpu in random.sample([1, 2, 3, 4, 5, 6], 3))
        found = removals.find(filled(free, leavers), gang, EVERY, leavers, {0: len(leavers)})
        assert found is None or is_enough(free, leavers, found, gang, EVERY)
        several += found is not None
    assert several > 1


def test_on_small_clusters_few_gangs_of_different_pods_are_missed() -> None:
    missed, more, fewest = 0, 0, 0
    for seed in range(300):
        random = Random(seed)
        leavers = [
            Leaver(random.randrange(3), shape(gpu=random.choice([1, 1, 2])).demand, random.randrange(2))
            for _ in range(random.randint(4, 8))
        ]
        gang = tuple(Members(shape(gpu=gpu), random.randint(1, 2)) for gpu in random.sample([1, 2, 3, 4, 8], 2))
        free = [random.randint(0, 3) for _ in range(3)]
        most = {owner: random.choice([8, 8, random.randint(1, 7)]) for owner in range(2)}
        room = filled(free, leavers)
        before = [dict(room.free(node)) for node in range(3)]
        found = removals.find(room, gang, EVERY, leavers, most)
        assert [room.free(node) for node in range(3)] == before, "the search has changed what is free"
        sets = (each for size in range(len(leavers) + 1) for each in combinations(range(len(leavers)), size))
        able = (each for each in sets if keeps_limits(leavers, each, most))
        least = next((each for each in able if is_enough(free, leavers, each, gang, EVERY)), None)
        if found is None:
            missed += least is not None
            continue
        assert keeps_limits(leavers, found, most)
        assert is_enough(free, leavers, found, gang, EVERY)
        assert least is not None
        more, fewest = more + len(found) - len(least), fewest + len(least)
    assert missed <= 3
    assert more <= 0.03 * fewest
