"""A queue pays later for a job that turned out to cost more than it did at its pick."""

import pytest

from crds.keys import JobKey
from queues.pick_cycle import PickCycle
from queues.rules import PickRules
from queues.store import PendingCommit, RaisedCharge
from queues.values import Batch
from tests.doubles.memory_store import MemoryStore
from tests.support.queues.builders import START, entry, key, order, spec

BY_MEMORY = PickRules(cost="memory")


@pytest.fixture
def store() -> MemoryStore:
    """Return a store with queues a and b of the same weight."""
    store = MemoryStore(lambda *_: None)
    store.rebuild(1, [], [])
    store.configure([spec("a"), spec("b")], None)
    return store


def raised(queue: str, more: int = 4) -> RaisedCharge:
    """Return the charge of a job that takes `more` memory than at its pick."""
    return RaisedCharge(queue, {"memory": 3}, {"memory": 3 + more})


def go(store: MemoryStore, rounds: PickCycle, first: int, count: int) -> str:
    """Submit `count` jobs of cost 1 to each queue, and return the queues of the picks in order."""
    store.put([entry(f"job-{number:02}", queue, namespace=queue, memory=1)
               for queue in "ab" for number in range(first, first + count)])  # fmt: skip
    return order(rounds.run(START, 4, 16).reservations)


def test_charged_queue_waits_until_the_other_has_caught_up(store: MemoryStore) -> None:
    rounds = PickCycle(store, BY_MEMORY)
    assert go(store, rounds, 0, 1) == "ab"
    rounds.charge([raised("a")])
    assert go(store, rounds, 1, 8)[:8] == "bbbb" + "abab"


def test_charge_survives_a_round_without_picks_and_a_new_leader(store: MemoryStore) -> None:
    rounds = PickCycle(store, BY_MEMORY)
    assert go(store, rounds, 0, 1) == "ab"
    store.configure([spec("a", memory=1), spec("b", memory=1)], None)
    rounds.charge([raised("a")])
    assert go(store, rounds, 1, 8) == ""
    store.configure([spec("a"), spec("b")], None)
    assert go(store, PickCycle(store, BY_MEMORY), 9, 1)[:4] == "bbbb"


def test_charge_to_a_deleted_queue_changes_nothing(store: MemoryStore) -> None:
    rounds = PickCycle(store, BY_MEMORY)
    rounds.charge([raised("gone")])
    assert go(store, rounds, 0, 2) == "abab"


class Meanwhile(MemoryStore):
    """A store in which another process removes a waiting job just before the next commit."""

    def __init__(self) -> None:
        super().__init__(lambda *_: None)
        self.taken: list[JobKey] = []

    def pending_commit(self, batch: Batch) -> PendingCommit:
        """See QueueStore."""
        self.remove(self.taken)
        return super().pending_commit(batch)


def filled(store: MemoryStore) -> PickCycle:
    """Run one job of each queue, and let more jobs wait for room in the pool. Return the rounds."""
    store.configure([spec("a"), spec("b")], {"memory": 2})
    rounds = PickCycle(store, BY_MEMORY)
    assert go(store, rounds, 0, 8) == "ab"
    return rounds


@pytest.mark.parametrize(("cost", "expected"), [(4, "bbbb"), (-1, "aaba")])
def test_refused_commit_keeps_charges_and_refunds(cost: int, expected: str) -> None:
    store = Meanwhile()
    store.rebuild(1, [], [])
    rounds = filled(store)
    store.configure([spec("a"), spec("b")], None)
    store.taken = [key(f"job-{number:02}", queue) for queue in "ab" for number in range(2)]
    if cost > 0:
        rounds.charge([raised("a", cost)])
    else:
        rounds.refund("a", -cost)
    assert rounds.run(START, 4, 16).refused == "entry"
    assert order(rounds.run(START, 4, 16).reservations)[:4] == expected


def test_refund_survives_a_round_without_picks_and_a_new_leader(store: MemoryStore) -> None:
    rounds = filled(store)
    rounds.refund("a", 1)
    assert rounds.run(START, 4, 16).picked == 0
    store.configure([spec("a"), spec("b")], None)
    assert order(PickCycle(store, BY_MEMORY).run(START, 4, 16).reservations)[:4] == "aaba"
