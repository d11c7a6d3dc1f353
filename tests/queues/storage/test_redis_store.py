"""The store in Redis: repeated scripts after lost answers, interrupted rebuilds, and its stored values."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from queues import errors
from queues.redis import connection
from queues.redis.scripts import Script
from queues.storage import redis_store
from queues.storage.redis_store import RedisStore
from queues.store import IdleGrowth, StoreSettings
from tests.support.queues.builders import GPU, START, choose, entries, entry, key, reservation, run, spec, specs


class Repeating:
    """A script that is sent twice, as the client does after a lost answer."""

    def __init__(self, script: Script) -> None:
        self._script = script

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self._script(*args, **kwargs)
        return self._script(*args, **kwargs)

    def send(
        self, pipeline: connection.ScriptPipeline, arguments: Sequence[str | bytes | int | float]
    ) -> Callable[[], Any]:
        self._script.send(pipeline, arguments)()
        return self._script.send(pipeline, arguments)

    def run_all(self, client: connection.Connection, calls: Iterable[list[Any]]) -> None:
        arguments = list(calls)
        self._script.run_all(client, arguments)
        self._script.run_all(client, arguments)


def test_rebuild_in_many_chunks_loads_flushed_scripts(
    client: connection.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redis_store, "CHUNK", 3)
    store, held = RedisStore(client), [reservation(f"held-{number}") for number in range(40)]
    for epoch in (1, 2):
        client.script_flush()
        store.rebuild(epoch, held, entries("a", 100))
        store.configure(specs(a=1), None)
        assert len(store.reservations()) == 40
        assert store.snapshot(1).queues[0].waiting == 100
    with pytest.raises(errors.StoreLost, match="epoch 7"):
        redis_store._REBUILD.run_all(client, [[7, "charge"]])


def test_every_script_has_the_same_result_when_sent_twice(
    client: connection.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("_PUT", "_REMOVE", "_CONFIGURE", "_SNAPSHOT", "_COMMIT", "_REBUILD", "_RESERVATIONS", "_GROW_IDLE"):
        monkeypatch.setattr(redis_store, name, Repeating(getattr(redis_store, name)))
    store = RedisStore(client, StoreSettings(ports=(20000, 20009)))
    held = reservation("held", gpu=1, port=20000)
    store.rebuild(1, [held], entries("a", 4, gpu=2))
    store.configure(specs(a=1), {GPU: 8})
    taken = list(run(store, 2, 2))
    assert [each.port for each in taken] == [20001, 20002]
    store.put([entry("more", submitted=START + 9, gpu=1)])
    snapshot = store.snapshot(9)
    assert dict(snapshot.pool_usage) == {"jobs": 3, GPU: 5}
    assert snapshot.revision == 1
    assert len(store.reservations()) == 3
    growth = IdleGrowth(key=held.key, attempt=1, grown=0, workers=1, charge={GPU: 1})
    assert store.grow_idle([growth], 1, 1) == [""]
    assert dict(store.snapshot(9).pool_usage) == {"jobs": 3, GPU: 6}
    store.remove([held.key, *(each.key for each in taken)])
    assert dict(store.snapshot(9).pool_usage) == {}


def test_interrupted_rebuild_leaves_a_lost_store(client: connection.Connection) -> None:
    store = RedisStore(client)
    store.rebuild(1, [reservation("old")], entries("a", 2))

    def broken() -> Any:
        yield entry("first")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        RedisStore(client).rebuild(2, [], broken())
    assert store.epoch() == 0
    with pytest.raises(errors.StoreLost):
        store.put([entry("new")])
    with pytest.raises(errors.StaleEpoch):
        RedisStore(client).rebuild(1, [], [])
    again = RedisStore(client)
    again.rebuild(2, [], [entry("job")])
    again.configure(specs(a=1), None)
    assert [each.entry.key for each in again.snapshot(9).queues[0].heads] == [key("job")]
    assert again.reservations() == {}


def test_concurrent_rebuild_of_the_higher_epoch_wins(client: connection.Connection) -> None:
    low, high = RedisStore(client), RedisStore(client)

    def overtaken() -> Any:
        high.rebuild(3, [reservation("right")], [])
        yield entry("wrong")

    with pytest.raises(errors.StaleEpoch):
        low.rebuild(2, [reservation("wrong")], overtaken())
    assert high.reservations().keys() == {key("right")}
    assert high.epoch() == 3


def test_stored_numbers_are_exact_and_values_are_plain_json(client: connection.Connection) -> None:
    store = RedisStore(client)
    large = 2**53 - 1
    store.rebuild(1, [], [entry("job", memory=large, gpu=1)])
    store.configure([spec("a", memory=large)], {"memory": large})
    list(run(store, 1))
    counted = b'{"jobs":1,"memory":9007199254740991,"nvidia.com/gpu":1}'
    assert client.hgetall("torchq:usage") == {b"": counted, b"a": counted}
    assert client.hget("torchq:reservations", str(key("job"))) == (
        b'{"attempt":1,"charge":{"jobs":1,"memory":9007199254740991,"nvidia.com/gpu":1},'
        b'"epoch":1,"kind":"admit","paid":1,"pick":1,"port":0,"queue":"a"}'
    )


def test_credits_may_grow_beyond_the_exact_integers_of_lua(client: connection.Connection) -> None:
    store = RedisStore(client)
    waiting = [*entries("a", 20, memory=2**50), *entries("b", 20, memory=2**50 + 1)]
    store.rebuild(1, [], waiting)
    store.configure(specs(a=900, b=100), None)
    list(run(store, 12, 5, cost="memory"))
    snapshot = store.snapshot(9)
    assert snapshot.clock.served > 2**53
    assert choose(snapshot, START, 1, "memory").picks


def test_no_pick_stands_once_the_sums_alone_are_lost(client: connection.Connection) -> None:
    store = RedisStore(client)
    store.rebuild(1, [reservation("held", gpu=1)], entries("a", 5, gpu=1))
    store.configure([spec("a", gpu=2)], None)
    client.delete("torchq:usage")  # a Redis that evicts keys does the same
    with pytest.raises(errors.StoreLost, match="the sums of what queues use are lost"):
        list(run(store, 1))
    growth = IdleGrowth(key=key("held"), attempt=1, grown=0, workers=1, charge={GPU: 1})
    with pytest.raises(errors.StoreLost):
        store.grow_idle([growth], 1, 1)
    with pytest.raises(errors.StoreLost):
        store.remove([key("held")])  # this removal would make the sums negative, and hide their loss
    assert store.all_reservations().keys() == {key("held")}
    store.rebuild(2, store.all_reservations().values(), entries("a", 5, gpu=1))
    list(run(store, 3))
    assert len(store.reservations()) == 2


@pytest.mark.parametrize("name", ["rules", "cohorts", "shared"])
def test_no_pick_stands_once_limits_alone_are_lost(client: connection.Connection, name: str) -> None:
    store = RedisStore(client)
    queues = [replace(spec("a", gpu=2), cohort="lab")]
    store.rebuild(1, [reservation("held", gpu=1)], entries("a", 5, gpu=1))
    store.configure(queues, None)
    client.delete(f"torchq:{name}")  # a Redis that evicts keys does the same
    with pytest.raises(errors.StoreLost, match="the limits of queues or cohorts are lost"):
        list(run(store, 1))
    store.rebuild(2, store.all_reservations().values(), entries("a", 5, gpu=1))
    store.configure(queues, None)
    list(run(store, 3))
    assert len(store.reservations()) == 2


def test_removed_jobs_leave_no_keys(client: connection.Connection) -> None:
    store = RedisStore(client, StoreSettings(ports=(20000, 20099)))
    store.rebuild(1, [], [])
    store.configure(specs(a=1, b=1), {GPU: 99})

    def keys() -> list[bytes]:
        return sorted(name for name in client.scan_iter() if not name.startswith(b"torchq:work:"))

    list(run(store, 1))
    store.put([*entries("a", 5, gpu=1), *entries("b", 5, gpu=1)])
    list(run(store, 6))
    store.remove(each.key for name in "ab" for each in entries(name, 5))
    once = keys()
    store.put([*entries("a", 5, gpu=1), *entries("b", 5, gpu=1)])
    list(run(store, 6))
    store.remove(each.key for name in "ab" for each in entries(name, 5))
    assert keys() == once
    assert not {b"torchq:entries", b"torchq:reservations", b"torchq:usage", b"torchq:ports"} & set(once)
