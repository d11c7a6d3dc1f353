"""Memory and Redis return the same results for any calls, and their usage equals the sum of the reservations."""

from collections.abc import Callable
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from crds.resources.amounts import OTHERS
from queues import errors
from queues.redis import connection
from queues.storage.redis_store import RedisStore
from queues.store import IdleGrowth, LoweredCharge, QueueStore, StoreSettings
from queues.values import Account, Clock, Pick, QueueSpec, Reservation
from tests.doubles.memory_store import MemoryStore
from tests.support.queues.builders import GPU, START, choose, commit, entry, further, key, reservation, usage, used

Step = Callable[[QueueStore], object]
PORTS = StoreSettings(ports=(30000, 30006))

ODD, RARE = "example.org/odd", "example.org/rare"
"""Resources that count only while a limit names them."""
NAMES = ["one", "two", "three", "four", "five", "six"]
names = st.sampled_from(NAMES)
queue_names = st.sampled_from("abc")
amounts_small = st.integers(0, 5)
counts = st.sampled_from([0, 0, 1, 3])
plain_jobs = st.builds(
    lambda returning, odd, rare, **fields: replace(entry(**{ODD: odd, RARE: rare}, **fields), returning=returning),
    returning=st.sampled_from([False, False, True]),
    odd=st.sampled_from([0, 0, 1, 3]),
    rare=st.sampled_from([0, 0, 2]),
    port=st.booleans(),
    name=names,
    queue=queue_names,
    submitted=st.sampled_from([START, START + 1, START + 0.1, START + 700.3]),
    priority=st.integers(-2, 2),
    kind=st.sampled_from(["admit", "admit", "grow"]),
    attempt=st.integers(1, 3),
    gpu=amounts_small,
    memory=st.sampled_from([0, 1, 2**47]),  # sums are exact below 2**53
)
jobs = st.builds(
    lambda job, most, step, size, grown, odd, idle: replace(
        further(job, most, step, size, grown, gpu=1, **{ODD: odd}), idle=idle if job.kind == "grow" else 0
    ),
    job=plain_jobs,
    most=counts,
    step=st.integers(1, 2),
    size=counts,
    grown=st.sampled_from([0, 0, 1, 2]),
    odd=amounts_small,
    idle=st.sampled_from([0, 0, 1, 2]),
)
queues = st.builds(
    QueueSpec,
    name=queue_names,
    weight=st.integers(1, 7),
    open=st.sampled_from([True, True, False]),
    quota=st.dictionaries(st.sampled_from(["jobs", GPU, ODD, RARE]), st.integers(0, 9)),
    cohort=st.sampled_from(["", "x", "x", "y"]),
    borrowing=st.dictionaries(st.sampled_from(["jobs", GPU, ODD]), st.integers(0, 3)),
    strict=st.booleans(),
    aging_seconds=st.sampled_from([0.0, 600.0, 0.3, 1000.0]),
)
held = st.builds(
    lambda odd, size, grown, idle, **fields: replace(
        reservation(**{ODD: odd}, **fields), size=size, grown=grown, idle=min(idle, size)
    ),
    odd=amounts_small,
    size=counts,
    grown=st.sampled_from([0, 0, 1]),
    idle=st.sampled_from([0, 1, 2]),
    name=names,
    queue=queue_names,
    port=st.sampled_from([0, 30001, 30002]),
    gpu=amounts_small,
)


def put(entries: list) -> Step:  # type: ignore[type-arg]
    return lambda store: store.put(entries)


def remove(gone: list[str]) -> Step:
    return lambda store: store.remove([key(name) for name in gone])


def withdraw(kept: list[str]) -> Step:
    return lambda store: store.withdraw([key(name) for name in kept])


def lower(reservations: list[Reservation]) -> Step:
    """Return a step that lowers charges to the charges of these reservations."""
    return lambda store: store.lower(
        [
            LoweredCharge(key=each.key, attempt=each.attempt, grown=each.grown, size=each.size, charge=each.charge)
            for each in reservations
        ]
    )


def grow_idle(wanted: list[str], workers: int, gpu: int, is_current: bool) -> Step:
    """Return a step that gives these jobs idle workers. The step names the current numbers of the jobs, or wrong
    ones.
    """

    def step(store: QueueStore) -> object:
        snapshot, held_now = store.snapshot(0), store.reservations()
        charged = [held_now.get(key(name), reservation(name)) for name in wanted]
        growths = [
            IdleGrowth(key=each.key, attempt=each.attempt, grown=each.grown, workers=workers, charge={GPU: gpu, ODD: 1})
            for each in charged
        ]
        return store.grow_idle(growths, snapshot.epoch, snapshot.revision - (not is_current))

    return step


def configure(specs: list[QueueSpec], pool: dict[str, int] | None) -> Step:
    return lambda store: store.configure(specs, pool)


def rebuild(epoch: int, reservations: list, entries: list) -> Step:  # type: ignore[type-arg]
    return lambda store: store.rebuild(epoch, reservations, entries)


def cycle(limit: int, heads: int, cost: str) -> Step:
    return lambda store: commit(store, choose(store.snapshot(heads), START, limit, cost))


def blind_commit(limit: int, cost: str) -> Step:
    """Return a step that commits picks of the first entries without a check for room."""

    def step(store: QueueStore) -> object:
        snapshot = store.snapshot(9)
        heads = [waiting for view in snapshot.queues for waiting in view.heads]
        picks = [
            Pick(
                waiting=waiting,
                cost=1,
                clock=Clock(served=number),
                accounts={waiting.entry.queue: Account(base=number, weight=1)},
                units=min(number, waiting.entry.most),
                nodes="" if number == 2 else f"0=n{number}*{10 ** (number % 4 * 700)}",
            )
            for number, waiting in enumerate(heads[:limit], 1)
        ]
        return commit(store, replace(choose(snapshot, START, 0, cost), picks=tuple(picks)))

    return step


def stale_cycle(limit: int, between: Step) -> Step:
    """Return a step that runs another step between the choice and its commit."""

    def step(store: QueueStore) -> object:
        batch = choose(store.snapshot(9), START, limit, "jobs")
        between(store)
        return commit(store, replace(batch, epoch=max(batch.epoch, 1)))

    return step


puts = st.builds(put, st.lists(jobs, max_size=6))
removes = st.builds(remove, st.lists(names, max_size=3))
withdrawals = st.builds(withdraw, st.lists(names, max_size=3))
lowerings = st.builds(lower, st.lists(held, max_size=3))
idle_growths = st.builds(
    grow_idle, st.lists(names, max_size=3), st.integers(1, 2), st.integers(0, 3), st.sampled_from([True, True, False])
)
configures = st.builds(
    configure,
    st.lists(queues, max_size=3, unique_by=lambda spec: spec.name),
    st.none()
    | st.fixed_dictionaries({GPU: st.integers(0, 12)})
    | st.fixed_dictionaries({RARE: st.integers(0, 12), OTHERS: st.just(0)}),
)
rebuilds = st.builds(
    rebuild,
    st.integers(1, 6),
    st.lists(held, max_size=2, unique_by=(lambda each: each.key, lambda each: each.port or each.key)),
    st.lists(jobs, max_size=4),
)
cycles = st.builds(cycle, st.integers(1, 5), st.integers(1, 4), st.sampled_from(["jobs", GPU]))
blinds = st.builds(blind_commit, st.integers(1, 6), st.just("jobs"))
stale = st.builds(stale_cycle, st.integers(1, 5), st.one_of(puts, removes, configures))
steps = st.lists(
    st.one_of(
        *(puts, puts, removes, withdrawals, lowerings, idle_growths, configures),
        *(cycles, cycles, blinds, stale, rebuilds),
    ),
    min_size=4,
    max_size=25,
)


def answer(store: QueueStore, step: Step) -> object:
    """Return the result of a step, or the type of the error that it raises."""
    try:
        return step(store)
    except errors.QueueError as error:
        return type(error)


def check_twins(client: connection.Connection, history: list[Step]) -> None:
    client.flushall()
    memory, redis = MemoryStore(lambda *_: None, PORTS), RedisStore(client, PORTS)
    for store in (memory, redis):
        store.rebuild(1, [], [])
        store.configure([QueueSpec(name="a", weight=2), QueueSpec(name="b")], {GPU: 9})
    for step in history:
        assert answer(memory, step) == answer(redis, step)
        assert memory.snapshot(9) == redis.snapshot(9)
        assert [memory.place(key(name)) for name in NAMES] == [redis.place(key(name)) for name in NAMES]
        assert memory.reservations() == redis.reservations()
        configured = {"", *(view.spec.name for view in memory.snapshot(0).queues)}
        seen, twin = memory.inspect(), redis.inspect()
        assert (seen.counted, seen.pool_usage) == (twin.counted, twin.pool_usage)
        assert {name: use for name, use in seen.usage.items() if use} == twin.usage
        sums = used(memory.reservations().values(), seen.counted)
        counted = {name: use for name, use in sums.items() if use or not name}
        assert usage(memory.snapshot(0)) == {name: use for name, use in counted.items() if name in configured}


@given(history=steps)
def test_memory_and_redis_return_the_same_results(redis_url: str, history: list[Step]) -> None:
    client = connection.connect(redis_url, client_name="test")
    check_twins(client, history)
    client.close()
