"""A queue pays for a job that turned out to cost more than when it was picked."""

import pytest

from queues.memory_store import MemoryStore
from queues.rounds import Rounds
from queues.rules import Rules

from .builders import START, entry, order, spec

BY_MEMORY = Rules(cost="memory")


@pytest.fixture
def store() -> MemoryStore:
    """Queues a and b of one weight."""
    store = MemoryStore(lambda *_: None)
    store.rebuild(1, [], [])
    store.configure([spec("a"), spec("b")], None)
    return store


def go(store: MemoryStore, rounds: Rounds, first: int, count: int) -> str:
    """Submit so many jobs of 1 to each queue; the queues of the picks, in order."""
    store.put([entry(f"job-{number:02}", queue, namespace=queue, memory=1)
               for queue in "ab" for number in range(first, first + count)])  # fmt: skip
    return order(rounds.round(START, 4, 16).reservations)


def test_the_other_queue_goes_until_it_is_even(store: MemoryStore) -> None:
    rounds = Rounds(store, BY_MEMORY)
    assert go(store, rounds, 0, 1) == "ab"
    rounds.charge([("a", 4)])
    assert go(store, rounds, 1, 8)[:8] == "bbbb" + "abab"


def test_it_is_paid_also_where_nothing_can_be_picked_and_another_leader_goes_on(store: MemoryStore) -> None:
    rounds = Rounds(store, BY_MEMORY)
    assert go(store, rounds, 0, 1) == "ab"
    store.configure([spec("a", memory=1), spec("b", memory=1)], None)
    rounds.charge([("a", 4)])
    assert go(store, rounds, 1, 8) == ""
    store.configure([spec("a"), spec("b")], None)
    assert go(store, Rounds(store, BY_MEMORY), 9, 1)[:4] == "bbbb"


def test_a_queue_that_is_gone_pays_nothing(store: MemoryStore) -> None:
    rounds = Rounds(store, BY_MEMORY)
    rounds.charge([("gone", 4)])
    assert go(store, rounds, 0, 2) == "abab"
