"""Inspection and reset of a store and a work queue, with equal results in memory and on Redis."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from queues import errors, order, redis_keys
from queues.dispatch.redis_work import RedisWork
from queues.inspection import redis_reader
from queues.inspection.rq_record import FUNCTION
from queues.inspection_values import Fault
from queues.redis import connection
from queues.storage.redis_store import RedisStore
from queues.store import QueueStore
from queues.tasks import Offer
from queues.work import WorkSettings
from queues.work_kinds import KINDS
from tests.queues.conftest import Clock, Place, RedisPlace
from tests.support.queues.builders import START, choose, commit, entry, key, registration, reservation, spec

JOB = str(key("j"))
HOSTILE = '["os.system", null, ["true"], {}]'


@pytest.fixture
def filled(place: Place) -> QueueStore:
    return fill(place)


def fill(place: Place) -> QueueStore:
    """Return a store with a job reserved by a rebuild, a picked job, and two waiting jobs, of which one is in an
    unknown queue.
    """
    store = place.open(ports=(20_000, 20_009))
    store.rebuild(3, [reservation("held", epoch=3, port=20_005, cpu=1000)], [entry("later", submitted=START + 1)])
    store.configure([spec("a", cpu=9000)], {"cpu": 9000})
    store.put([entry("first", cpu=2000), entry("else", queue="b", priority=2)])
    committed = commit(store, choose(store.snapshot(8), START, 1, "jobs"))
    assert [each.key for each in committed.reservations] == [key("first")]
    return store


def test_inspect_returns_all_data_of_the_store(filled: QueueStore) -> None:
    seen = filled.inspect()
    assert (seen.epoch, seen.rebuilding, seen.pool) == (3, 0, {"cpu": 9000})
    assert list(seen.specs.values()) == [spec("a", cpu=9000)]
    assert dict(seen.entries) == {
        each.key: each for each in (entry("later", submitted=START + 1), seen.entries[key("else")])
    }
    assert seen.places == {
        "a": {key("later"): START + 1},
        "b": {key("else"): order.score(seen.entries[key("else")], 600.0)},
    }
    assert seen.reservations == filled.reservations()
    assert seen.usage == {"a": {"cpu": 3000, "jobs": 2}}
    assert seen.pool_usage == {"cpu": 3000, "jobs": 2}
    assert seen.ports == {20_005: key("held"), 20_006: key("first")}
    assert (seen.faults, seen.unknown, seen.foreign) == ((), (), ())


def test_inspect_of_a_lost_store_has_epoch_zero(place: Place) -> None:
    assert place.open().inspect().epoch == 0


def test_forget_deletes_what_a_rebuild_restores_and_keeps_settings(filled: QueueStore, place: Place) -> None:
    accounts = [view.account for view in filled.snapshot(1).queues]
    filled.forget(3)
    assert filled.epoch() == 0
    with pytest.raises(errors.StoreLost):
        filled.put([entry("new")])
    filled.forget(3)
    seen = filled.inspect()
    assert (seen.epoch, dict(seen.entries), dict(seen.reservations), dict(seen.ports)) == (0, {}, {}, {})
    assert not any(seen.usage.values())
    assert not seen.pool_usage
    filled.rebuild(4, [reservation("held", epoch=3, cpu=1000)], [])
    again = filled.snapshot(1)
    assert [view.spec for view in again.queues] == [spec("a", cpu=9000)], "settings are kept"
    assert [view.account for view in again.queues] == accounts, "credits are kept"


def test_forget_under_a_stale_epoch_deletes_nothing(filled: QueueStore, place: Place) -> None:
    place.open().rebuild(4, [reservation("held", epoch=4)], [entry("later")])
    with pytest.raises(errors.StaleEpoch, match="epoch 3 is over"):
        filled.forget(3)
    seen = filled.inspect()
    assert (seen.epoch, len(seen.entries), len(seen.reservations)) == (4, 1, 1)


# Data that only a store in Redis can hold


Write = Callable[[connection.Connection], Any]


@pytest.fixture
def redis_place(client: connection.Connection, clock: Clock) -> RedisPlace:
    return RedisPlace(client, clock)


@pytest.mark.parametrize(
    ("write", "where"),
    [
        (lambda client: client.set(redis_keys.QUEUES, "x"), redis_keys.QUEUES),
        (lambda client: client.hset(redis_keys.QUEUES, "a", "{"), f"{redis_keys.QUEUES} a"),
        (lambda client: client.hset(redis_keys.QUEUES, "a", '{"weight": 1}'), f"{redis_keys.QUEUES} a"),
        (lambda client: client.set(redis_keys.POOL, "{"), redis_keys.POOL),
        (lambda client: client.hset(redis_keys.ACCOUNTS, "a", "[1]"), f"{redis_keys.ACCOUNTS} a"),
        (lambda client: client.set(redis_keys.CLOCK, "1"), redis_keys.CLOCK),
        (lambda client: client.hset(redis_keys.OVERTAKEN, "a", "x"), f"{redis_keys.OVERTAKEN} a"),
        (lambda client: client.hset(redis_keys.ENTRIES, JOB, b"\xff"), f"{redis_keys.ENTRIES} {JOB}"),
        (lambda client: client.hset(redis_keys.ENTRIES, JOB, "one,{}"), f"{redis_keys.ENTRIES} {JOB}"),
        (lambda client: client.hset(redis_keys.RESERVATIONS, JOB, "[]"), f"{redis_keys.RESERVATIONS} {JOB}"),
        (lambda client: client.hset(redis_keys.RESERVATIONS, "no key", "{}"), f"{redis_keys.RESERVATIONS} no key"),
        (lambda client: client.hset(redis_keys.PORTS, "http", JOB), f"{redis_keys.PORTS} http"),
        (lambda client: client.hset(redis_keys.USAGE, "a", '{"cpu":"much"}'), f"{redis_keys.USAGE} a"),
        (lambda client: (client.delete(redis_keys.USAGE), client.set(redis_keys.USAGE, "1")), redis_keys.USAGE),
        (lambda client: client.set(redis_keys.ORDER + "x", "1"), redis_keys.ORDER + "x"),
        (lambda client: client.zadd(redis_keys.ORDER + "a", {"x": 1}), redis_keys.ORDER + "a x"),
        (lambda client: (client.delete(redis_keys.EPOCH), client.lpush(redis_keys.EPOCH, "x")), redis_keys.EPOCH),
        (lambda client: client.set(redis_keys.EPOCH, "late"), redis_keys.EPOCH),
    ],
)
def test_unreadable_value_is_reported_as_a_fault_and_deleted_by_forget(
    redis_place: RedisPlace, write: Write, where: str
) -> None:
    filled, client = fill(redis_place), redis_place.client
    for name in (redis_keys.QUEUES,) if where == redis_keys.QUEUES else ():
        client.delete(name)
    write(client)
    assert [fault.where for fault in filled.inspect().faults] == [where]
    filled.forget(3)
    filled.rebuild(4, [reservation("held", epoch=3, cpu=1000)], [entry("later")])
    filled.configure([spec("a", cpu=9000)], {"cpu": 9000})
    assert filled.inspect().faults == ()
    assert filled.snapshot(8).queues[0].waiting == 1
    assert choose(filled.snapshot(8), START, 1, "jobs").picks


def test_unknown_keys_are_named_and_only_torchq_keys_are_deleted(redis_place: RedisPlace) -> None:
    filled, client = fill(redis_place), redis_place.client
    for name in ("torchq:junk", "torchq:work:junk", "rq:queue:other", "somebody:else"):
        client.set(name, 1)
    seen = filled.inspect()
    assert seen.unknown == ("rq:queue:other", "torchq:junk", "torchq:work:junk")
    assert seen.foreign == ("somebody:else",)
    filled.forget(3)
    assert client.keys("*junk") == client.keys("rq:*") == []
    assert client.get("somebody:else") == b"1"


@pytest.mark.parametrize("tie", ["", "999999999999~ team later "])
def test_stray_place_of_an_entry_is_reported_and_deleted_by_forget(redis_place: RedisPlace, tie: str) -> None:
    filled, client, later = fill(redis_place), redis_place.client, key("later")
    client.zadd(redis_keys.ORDER + "a", {order.place_of(tie, str(later)): 1, str(later): 1})
    seen = filled.inspect()
    assert seen.stray_places == {"a": {later}}
    assert seen.places["a"] == {later: START + 1}
    filled.forget(3)
    filled.rebuild(4, [], [entry("later")])
    assert filled.inspect().stray_places == {}


def test_inspect_changes_nothing(redis_place: RedisPlace) -> None:
    filled, client = fill(redis_place), redis_place.client
    client.set(redis_keys.ORDER + "x", "1")
    before = {name: client.dump(name) for name in client.keys("*")}
    filled.inspect()
    RedisWork(client).inspect()
    assert {name: client.dump(name) for name in client.keys("*")} == before


def test_schema_documents_every_key_of_the_scripts() -> None:
    """A reset would treat a key that the schema lacks as an unknown key, and delete it."""
    folder = Path(redis_keys.__file__).parent / "lua"
    text = "\n".join(path.read_text() for path in folder.rglob("*.lua"))
    named = set(re.findall(r"'((?:torchq|rq):[a-z:_]*)'", text))
    assert len(named) > 20
    assert {name for name in named if not redis_keys.is_documented(name + "x" if name.endswith(":") else name)} == {
        "torchq:",
        "rq:",
    }


def test_unreadable_entry_raises_an_error_that_names_torchq_doctor(redis_place: RedisPlace) -> None:
    filled, client = fill(redis_place), redis_place.client
    client.zadd(redis_keys.ORDER + "a", {"x!y!z": 1})
    with pytest.raises(errors.Unreadable, match="torchq doctor"):
        filled.snapshot(1)
    client.hset(redis_keys.RESERVATIONS, JOB, "[]")
    with pytest.raises(errors.Unreadable, match="torchq doctor"):
        filled.reservations()


def test_faults_are_sorted_by_place() -> None:
    assert sorted([Fault("b", "x"), Fault("a", "x")])[0].where == "a"


def test_work_queue_inspect_returns_all_data_and_forget_deletes_it(redis_place: RedisPlace) -> None:
    client = redis_place.client
    store = RedisStore(client)
    store.rebuild(1, [], [])
    now = [START]
    work = RedisWork(client, clock=lambda: now[0])
    work.register(registration("w1", 1))
    work.offer([Offer(key=key(name), tenant="a") for name in ("one", "two")])
    work.offer([Offer(key=key("late"), tenant="b", delay=5.0)])
    assert work.dispatch() == 1
    seen = work.inspect()
    assert {each.name: record.state for each, record in seen.records.items()} == {
        "one": "leased",
        "two": "ready",
        "late": "delayed",
    }
    leased, late = seen.records[key("one")], seen.records[key("late")]
    assert leased.lease_ends == START + WorkSettings().dispatched_lease
    assert seen.leases == {key("one"): leased.lease_ends}
    assert late.due == START + 5.0
    assert (seen.ready, seen.turns) == ({"a": {key("two")}}, {"a"})
    assert (seen.ready_count, seen.ready_length) == (1, 1)
    assert [member.registration for member in seen.members] == [registration("w1", 1)]
    assert [(job.where, job.function) for job in seen.rq] == [("queue", FUNCTION)]
    client.hset("rq:job:h1", "data", HOSTILE)
    client.zadd(redis_keys.RQ_REGISTRIES["failed"], {"h1": 9e9})
    client.hset("rq:job:h2", "data", b"\x80\x04pickle")
    assert {(job.id, job.where, job.function) for job in work.inspect().rq if job.function != FUNCTION} == {
        ("h1", "failed", "os.system"),
        ("h2", "none", ""),
    }
    client.hset(redis_keys.RECORDS, JOB, "{")
    assert [fault.where for fault in work.inspect().faults] == [f"{redis_keys.RECORDS} {JOB}"]
    work.forget(1)
    after = work.inspect()
    assert (after.records, after.ready, after.leases, after.rq, after.ready_count) == ({}, {}, {}, (), 0)
    assert after.members == seen.members
    assert store.epoch() == 0, "nothing runs before the rebuild"
    assert client.keys("rq:*") == [b"rq:queues"]


def test_work_queue_inspect_shows_the_lanes_of_each_kind_and_forget_deletes_them(redis_place: RedisPlace) -> None:
    RedisStore(redis_place.client).rebuild(1, [], [])
    work = RedisWork(redis_place.client)
    work.offer([Offer(key=key(kind), tenant="a", kind=kind) for kind in KINDS])
    seen = work.inspect()
    assert {each.name: record.kind for each, record in seen.records.items()} == {kind: kind for kind in KINDS}
    assert seen.ready == {"ends:a": {key("ends")}, "a": {key("begins")}, "tells:a": {key("tells")}}
    assert (seen.turns, seen.ready_count, seen.ready_length) == ({"ends:a", "a", "tells:a"}, 3, 3)
    assert not redis_reader.read_store(redis_place.client).unknown
    work.forget(1)
    assert (work.inspect().ready, work.inspect().turns) == ({}, set())


def test_a_pick_of_a_key_that_was_to_tell_later_begins(redis_place: RedisPlace) -> None:
    store, work = RedisStore(redis_place.client), RedisWork(redis_place.client)
    store.rebuild(1, [], [])
    store.configure([spec("a")], None)
    store.put([entry("late"), entry("new")])
    work.offer([Offer(key=key("late"), tenant="/team", delay=5.0, kind="tells")])
    assert len(commit(store, choose(store.snapshot(8), START, 8, "jobs")).reservations) == 2
    assert work.inspect().ready == {"a": {key("late"), key("new")}}
    assert {record.kind for record in work.inspect().records.values()} == {"begins"}


def test_forget_keeps_a_batch_that_a_worker_runs(redis_place: RedisPlace) -> None:
    client = redis_place.client
    client.hset("rq:job:b1", "data", HOSTILE.replace("os.system", FUNCTION))
    client.zadd(redis_keys.RQ_STARTED, {"b1:execution": 9e9})
    RedisWork(client).forget(1)
    assert client.exists("rq:job:b1", redis_keys.RQ_STARTED) == 2
