"""The order of jobs that were created in the same second: it is the same in memory and on Redis."""

from collections.abc import Iterable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queues import errors, order
from queues.redis import connection
from queues.storage.redis_store import RedisStore
from queues.store import QueueStore
from queues.values import Entry
from tests.doubles.memory_store import MemoryStore
from tests.queues.conftest import Place
from tests.queues.picking.test_order import named, submissions
from tests.support.queues.builders import START, choose, commit, key, spec, specs


def first_names(store: QueueStore, queue: str = "a") -> list[str]:
    """Return the names of the waiting jobs of a queue, in order."""
    views = {view.spec.name: view for view in store.snapshot(100).queues}
    return [waiting.entry.key.name for waiting in views[queue].heads]


def ranked(store: QueueStore, names: Iterable[str]) -> list[str]:
    """Return the names in the order of the ranks that the store reports."""
    places = {name: store.place(key(name)) for name in names}
    return sorted(places, key=lambda name: places[name].rank if (places[name]) else -1)


def picked(store: QueueStore, limit: int = 100) -> list[str]:
    """Return the names of the jobs that are admitted next, in order."""
    return [each.key.name for each in commit(store, choose(store.snapshot(100), START, limit, "jobs")).reservations]


@pytest.fixture
def store(place: Place) -> QueueStore:
    store = place.open()
    store.rebuild(1, [], [])
    store.configure(specs(a=1, b=1), None)
    return store


MIXED = [named("m-110"), named("m-2"), named("m-02"), named("z", "5.0"), named("y", "5.12"), named("x", "5.3")]
IN_ORDER = ["z", "x", "y", "m-02", "m-2", "m-110"]


def test_heads_places_and_picks_have_the_same_order(store: QueueStore) -> None:
    store.put(MIXED)
    assert first_names(store) == ranked(store, IN_ORDER) == IN_ORDER
    assert picked(store, 2) + picked(store) == IN_ORDER
    assert first_names(store) == []


def test_rebuild_keeps_the_order(place: Place, store: QueueStore) -> None:
    store.put(MIXED)
    again = place.open()
    again.rebuild(2, [], reversed(MIXED))
    assert first_names(again) == ranked(again, IN_ORDER) == IN_ORDER
    place.lose()
    lost = place.open()
    lost.prepare(3, MIXED)
    lost.rebuild(3, [], MIXED[1:])
    lost.configure(specs(a=1), None)
    assert first_names(lost) == [name for name in IN_ORDER if name != "m-110"]


def test_sequence_of_a_waiting_job_does_not_change(place: Place, store: QueueStore) -> None:
    store.put([named("first", "1.0"), named("second", "1.1"), named("none")])
    versions = {each.version for each in store.snapshot(9).queues[0].heads}
    store.put([named("first", "9.9"), named("second"), named("none", "0.0")])
    assert first_names(store) == ["first", "second", "none"]
    assert {each.version for each in store.snapshot(9).queues[0].heads} == versions
    store.put([replace(named("first", "9.9"), attempt=2), replace(named("none", "0.0"), attempt=3)])
    assert first_names(store) == ranked(store, ["first", "second", "none"]) == ["first", "second", "none"]
    store.put([replace(named(name, sequence), queue="b") for name, sequence in (("first", "9.9"), ("none", "0.0"))])
    assert (first_names(store), first_names(store, "b")) == (["second"], ["first", "none"])


def test_sequence_is_read_again_when_a_job_returns_to_the_queue(place: Place, store: QueueStore) -> None:
    store.put([named("first", "1.0"), named("second", "1.1")])
    store.remove([key("first")])
    store.put([named("first", "9.9")])
    assert first_names(store) == ["second", "first"]
    again = place.open()
    again.rebuild(2, [], [named("first", "9.9"), named("second", "99.0")])
    assert first_names(again) == ["first", "second"]


def test_priority_and_age_are_compared_before_the_sequence(store: QueueStore) -> None:
    urgent = replace(named("urgent"), priority=1)
    back = replace(named("back", "9.9"), returning=True)
    store.put([named("first", "0.0"), urgent, back, named("older", "9.9", START - 1)])
    assert first_names(store) == ["back", "urgent", "older", "first"]


def test_changed_aging_keeps_the_order_within_a_second(store: QueueStore) -> None:
    store.put(MIXED)
    store.configure([replace(spec("a"), aging_seconds=7.0), spec("b")], None)
    assert first_names(store) == IN_ORDER
    store.configure([], None)
    store.configure(specs(a=1), None)
    assert picked(store) == IN_ORDER


def test_stored_entry_has_no_sequence(store: QueueStore) -> None:
    store.put([named("job", "1.0")])
    [waiting] = store.snapshot(1).queues[0].heads
    assert waiting.entry == named("job") == named("job", "2.0")


def check_order(client: connection.Connection, jobs: list[Entry], later: list[Entry]) -> None:
    """Check that memory and Redis have the order of `order.place`, including after a rebuild.

    A second put of a waiting job does not move it.
    """
    client.flushall()
    kept = {job.key: job for job in (*later, *jobs)}.values()
    wanted = [job.key for job in sorted(kept, key=lambda job: order.place(job, 600))]
    for store in (MemoryStore(lambda *_: None), RedisStore(client)):
        store.rebuild(1, [], [])
        store.configure(specs(a=1), None)
        store.put(jobs)
        store.put(replace(job, sequence=sequence) for job, sequence in zip(jobs, ["7.7", "", "0.1"] * 4, strict=False))
        store.put([replace(job, queue="a") for job in later if job.key not in {each.key for each in jobs}])
        assert [waiting.entry.key for waiting in store.snapshot(100).queues[0].heads] == wanted
        assert [store.place(each).rank for each in wanted] == list(range(len(wanted)))  # type: ignore[union-attr]
        store.rebuild(2, [], kept)
        assert [waiting.entry.key for waiting in store.snapshot(100).queues[0].heads] == wanted
        assert [
            each.key for each in commit(store, choose(store.snapshot(100), START, 100, "jobs")).reservations
        ] == wanted


lists = st.lists(submissions, max_size=12, unique_by=lambda job: job.key)


@given(jobs=lists, later=lists)
def test_memory_and_redis_have_the_same_order(redis_url: str, jobs: list[Entry], later: list[Entry]) -> None:
    client = connection.connect(redis_url, client_name="test")
    check_order(client, jobs, later)
    client.close()


def test_put_rejects_a_key_that_cannot_be_sorted(store: QueueStore) -> None:
    for name in ("a b", 'a"', "a\\", "ä", "a\n"):
        with pytest.raises(errors.Unstorable, match="its key has"):
            store.put([named(name)])
    assert first_names(store) == []
