"""Usage counts only resources that a limit names: invented resource names of admitted jobs cost other jobs nothing."""

import pytest

from crds.resources.amounts import OTHERS, Amounts
from queues import limits
from queues.picking.picker import Picker
from queues.redis import connection
from queues.rules import PickRules
from queues.storage.redis_store import RedisStore
from queues.store import QueueStore, StoreSettings
from queues.values import Entry, QueueSpec, Reservation
from tests.queues.conftest import Place
from tests.support.queues.builders import (
    GPU,
    START,
    choose,
    commit,
    entry,
    key,
    reservation,
    run,
    spec,
    specs,
    usage,
    used,
)

MADE_UP = "example.org/made-up"
TPU = "example.org/tpu"


def odd(number: int, queue: str = "a", **demand: int) -> Entry:
    """Return a job that requests the largest permitted number of invented resources."""
    names = {f"{MADE_UP}-{number}-{at}": 1 for at in range(60)}
    return entry(f"odd-{number:03}", queue, START + number, **names, cpu=1, **demand)


def member(name: str, cohort: str = "c", **quota: int) -> QueueSpec:
    return QueueSpec(name=name, cohort=cohort, quota={TPU: quota["tpu"]})


def admit(store: QueueStore, *jobs: Entry) -> list[Reservation]:
    store.put(jobs)
    return list(run(store, len(jobs), batch=50))


@pytest.mark.parametrize("pool", [None, {GPU: 9, "cpu": 9_000}])
def test_usage_leaves_out_resources_that_no_limit_names(store: QueueStore, pool: Amounts | None) -> None:
    store.configure([spec("a"), spec("b", cpu=99)], pool)
    admitted = admit(store, *(odd(number, "ab"[number % 2]) for number in range(50)))
    assert all(len(each.charge) == 62 for each in admitted), "a charge keeps all its resources"
    assert admitted == sorted(store.reservations().values(), key=lambda each: each.pick)
    half = {"cpu": 25, "jobs": 25}
    assert usage(store.snapshot(0)) == {"": {"cpu": 50, "jobs": 50}, "a": half, "b": half}
    store.remove([each.key for each in admitted])
    assert usage(store.snapshot(0)) == {"": {}}
    assert not any(store.inspect().usage.values())


def test_rebuild_counts_the_same_resources_as_picks(store: QueueStore) -> None:
    store.configure([spec("a", **{TPU: 9})], None)
    held = [reservation(f"job-{number}", **{TPU: 1, f"{MADE_UP}-{number}": 1}) for number in range(5)]
    store.rebuild(2, held, [])
    assert usage(store.snapshot(0)) == {"": {TPU: 5, "jobs": 5}, "a": {TPU: 5, "jobs": 5}}


def test_first_configure_recounts_the_usage(place: Place) -> None:
    store = place.open()
    store.rebuild(1, [reservation("job", **{TPU: 2, MADE_UP: 1})], [])
    assert store.inspect().counted is None
    store.configure([spec("a", **{TPU: 9})], None)
    assert usage(store.snapshot(0)) == {"": {TPU: 2, "jobs": 1}, "a": {TPU: 2, "jobs": 1}}
    store.remove([key("job")])
    assert usage(store.snapshot(0)) == {"": {}}


@pytest.mark.parametrize(
    ("queues", "pool"),
    [
        ([spec("a", **{TPU: 7}), spec("b")], None),
        ([spec("a"), spec("b", **{TPU: 1})], {TPU: 9}),
        ([spec("a"), spec("b")], {TPU: 9}),
        ([spec("a"), spec("b")], {TPU: 9, OTHERS: 0}),
        ([member("a", tpu=4), member("b", tpu=5)], None),
        ([spec("a"), member("b", tpu=9)], None),
        ([member("b", tpu=9)], None),
    ],
)
def test_new_limit_on_a_resource_counts_jobs_already_admitted(
    store: QueueStore, queues: list[QueueSpec], pool: Amounts | None
) -> None:
    plain = specs(a=1, b=1)
    store.configure(plain, None)
    held = admit(store, *(odd(number, "ab"[number % 2], **{TPU: 1 + number}) for number in range(4)))
    assert not any(TPU in sums for sums in usage(store.snapshot(0)).values())
    for settings in ((queues, pool), (plain, None), (queues, pool)):
        store.configure(*settings)
        seen = store.inspect()
        assert seen.counted == limits.usage_resources(*settings)
        sums = used(held, seen.counted)
        assert {"": seen.pool_usage, **seen.usage} == sums
    store.remove([each.key for each in held[:3]])
    left = used(held[3:], seen.counted)
    assert {"": store.inspect().pool_usage} | {n: u for n, u in store.inspect().usage.items() if u} == left
    store.remove([held[3].key])
    assert not any([store.inspect().pool_usage, *store.inspect().usage.values()])


def test_new_limit_admits_exactly_the_remaining_amount(store: QueueStore) -> None:
    """With 4 of 5 used, quota, pool and cohort each admit one more job and refuse a second job."""
    store.configure(specs(a=1, b=1), None)
    admit(store, *(odd(number, "ab"[number % 2], **{TPU: 2}) for number in range(2)))
    limits = [([spec("a", **{TPU: 3}), spec("b", **{TPU: 2})], None), (specs(a=1, b=1), {TPU: 5})]
    limits += [([member("a", tpu=3), member("b", tpu=2)], None), ([member("a", tpu=4), member("b", tpu=1)], None)]
    for number, (queues, pool) in enumerate(limits):
        store.configure(queues, pool)
        asked = [entry(f"more-{number}-{at}", **{TPU: 1}) for at in range(3)]
        granted = admit(store, *asked)
        assert len(granted) == 1, number
        store.remove([each.key for each in asked])
        store.configure(specs(a=1, b=1), None)


def test_queue_that_joins_or_leaves_a_cohort_moves_its_usage(store: QueueStore) -> None:
    store.configure([member("a", tpu=4), spec("b")], None)
    admit(store, odd(0, "b", **{TPU: 3}))
    store.configure([member("a", tpu=4), member("b", tpu=1)], None)
    assert len(admit(store, *(entry(f"more-{at}", **{TPU: 1}) for at in range(4)))) == 2
    store.configure([member("a", tpu=4), spec("b")], None)
    assert len(list(run(store, 9))) == 2


def test_resources_named_in_settings_are_counted(place: Place) -> None:
    store = place.open()
    store.rebuild(1, [], [])
    store.configure(specs(a=1), None)
    admit(store, odd(0, **{TPU: 3}))
    assert store.inspect().usage == {"a": {"cpu": 1, "jobs": 1}}
    assert limits.usage_resources([], {OTHERS: 0, "x": 1}, {TPU}) == {*limits.STANDARD_RESOURCES, "x", TPU}
    assert StoreSettings().counted == frozenset()


def test_configure_with_equal_settings_changes_nothing(store: QueueStore) -> None:
    settings = [spec("a", **{TPU: 3})], {"cpu": 5}
    store.configure(*settings)
    before = store.snapshot(0)
    store.configure(*settings)
    assert store.snapshot(0) == before


def test_picker_does_not_count_resources_that_no_limit_names(store: QueueStore) -> None:
    store.configure([spec("a", cpu=99)], {"cpu": 99})
    store.put([odd(number) for number in range(50)])
    picker = Picker(store.snapshot(50), PickRules())
    assert len(picker.picks(START, 50).picks) == 50
    queue = picker.queue("a", START)
    assert queue is not None
    assert queue.used == picker.pool.used == {"cpu": 50}


def work(client: connection.Connection, *, made_up: bool) -> tuple[int, list[bytes]]:
    """Return the number of Redis commands of a commit with 200 admitted jobs, and the stored sums that it reads."""
    client.flushall()
    store = RedisStore(client)
    store.rebuild(1, [], [])
    cohort = [QueueSpec(name=name, cohort="c", quota={"cpu": 10_000}) for name in "ab"]
    store.configure([*cohort, spec("c")], None)
    for at in range(200):
        queue = "ac"[at % 2]
        store.put([odd(at, queue) if made_up else entry(f"plain-{at}", queue, cpu=1)])
    assert len(list(run(store, 200, batch=50))) == 200
    store.put([entry(f"later-{at}", "b", cpu=1) for at in range(10)])
    batch = choose(store.snapshot(50), START, 50, "jobs")
    sums = sorted([*client.hvals("torchq:usage"), *client.hvals("torchq:shared")])
    client.config_resetstat()
    assert commit(store, batch).picked == 10
    return sum(each["calls"] for each in client.info("commandstats").values()), sums


def test_commit_cost_does_not_grow_with_unlimited_resource_names(client: connection.Connection) -> None:
    assert work(client, made_up=True) == work(client, made_up=False)
