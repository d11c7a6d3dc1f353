"""A queue pays for a job that turned out to cost more than when it was picked."""

import pytest

from crds.keys import JobKey
from queues.pick_cycle import Rounds
from queues.rules import Rules
from queues.store import PendingCommit
from queues.values import Batch
from tests.doubles.memory_store import MemoryStore
from tests.support.queues.builders import START, entry, key, order, spec

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


class Meanwhile(MemoryStore):
    """A store in which another process takes a waiting job away just before the next commit."""

    def __init__(self) -> None:
        super().__init__(lambda *_: None)
        self.taken: list[JobKey] = []

    def pending_commit(self, batch: Batch) -> PendingCommit:
        """See QueueStore."""
        self.remove(self.taken)
        return super().pending_commit(batch)


def filled(store: MemoryStore) -> Rounds:
    """One job of each queue runs, and more wait until the pool has room for them."""
    store.configure([spec("a"), spec("b")], {"memory": 2})
    rounds = Rounds(store, BY_MEMORY)
    assert go(store, rounds, 0, 8) == "ab"
    return rounds


@pytest.mark.parametrize(("cost", "expected"), [(4, "bbbb"), (-1, "aaba")])
def test_a_refused_commit_loses_no_charge_and_no_refund(cost: int, expected: str) -> None:
    store = Meanwhile()
    store.rebuild(1, [], [])
    rounds = filled(store)
    store.configure([spec("a"), spec("b")], None)
    store.taken = [key(f"job-{number:02}", queue) for queue in "ab" for number in range(2)]
    if cost > 0:
        rounds.charge([("a", cost)])
    else:
        rounds.refund("a", -cost)
    assert rounds.round(START, 4, 16).refused == "entry"
    assert order(rounds.round(START, 4, 16).reservations)[:4] == expected


def test_a_refund_is_kept_where_nothing_can_be_picked_and_another_leader_goes_on(store: MemoryStore) -> None:
    rounds = filled(store)
    rounds.refund("a", 1)
    assert rounds.round(START, 4, 16).picked == 0
    store.configure([spec("a"), spec("b")], None)
    assert order(Rounds(store, BY_MEMORY).round(START, 4, 16).reservations)[:4] == "aaba"
