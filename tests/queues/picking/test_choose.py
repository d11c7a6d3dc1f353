"""The choice of the next job: nginx's sequences, shares by cost, blocked queues, and invariants of every input."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crds.keys import JobKey
from crds.resources.amounts import OTHERS, Amounts
from queues.picking.fair_share import lag
from queues.picking.picker import Picker
from queues.rules import PickRules
from queues.values import QueueSnapshot, QueueSpec, Reservation, Snapshot, WaitingEntry
from tests.doubles.memory_store import MemoryStore
from tests.support.queues.builders import (
    GPU,
    START,
    choose,
    commit,
    entries,
    entry,
    key,
    opened,
    order,
    reservation,
    run,
    spec,
    specs,
)

BATCHES = (1, 3, 128)
WEIGHTS = st.lists(st.integers(1, 40), min_size=1, max_size=12)


def unmarked(key: JobKey, tenant: str) -> None:
    """Ignore an admitted job: these tests run no worker."""


def lags(snapshot: Snapshot) -> dict[str, float]:
    """Return the lags of the queues that contend after the last pick."""
    return {view.spec.name: lag(view.account, snapshot.clock) for view in snapshot.queues if view.account.weight}


def nginx(weights: dict[str, int], picks: int) -> str:
    """Return the picks of nginx's smooth weighted round robin."""
    current, picked = dict.fromkeys(weights, 0), ""
    for _ in range(picks):
        for name, weight in weights.items():
            current[name] += weight
        best = max(current, key=lambda name: current[name])
        current[best] -= sum(weights.values())
        picked += best
    return picked


def letters(weights: Sequence[int]) -> dict[str, int]:
    return dict(zip("abcdefghijkl", weights, strict=False))


# Turns


@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize(
    ("weights", "sequence"),
    [
        ((5, 1, 1), "aabacaa"),
        ((4, 2, 2), "abca"),
        ((6, 4, 2), "abacba"),
        ((5, 2, 1), "abaacaba"),
        ((1, 1, 1), "abc"),
        ((1,), "a"),
    ],
)
def test_pick_sequence_repeats_every_period(weights: tuple[int, ...], sequence: str, batch: int) -> None:
    queues = letters(weights)
    store = opened(specs(**queues), [each for name in queues for each in entries(name, 70)])
    assert order(run(store, 3 * len(sequence), batch)) == sequence * 3
    assert set(lags(store.snapshot(0)).values()) == {0}


@given(weights=WEIGHTS, batch=st.sampled_from(BATCHES))
def test_with_cost_1_the_order_is_that_of_nginx_for_any_weights(weights: list[int], batch: int) -> None:
    queues = letters(weights)
    store = opened(specs(**queues), [each for name in queues for each in entries(name, 30)])
    assert order(run(store, 30, batch, heads=4)) == nginx(queues, 30)


@given(weights=WEIGHTS)
def test_every_prefix_of_picks_is_within_one_and_a_half_picks_of_the_share(weights: list[int]) -> None:
    queues, total = letters(weights), sum(weights)
    store = opened(specs(**queues), [each for name in queues for each in entries(name, 60)])
    picked = order(run(store, 60, 60, heads=60))
    for picks in range(1, 61):
        for name, weight in queues.items():
            assert abs(picked.count(name, 0, picks) - picks * weight / total) < 1.5


def test_tie_goes_to_the_first_queue_name() -> None:
    store = opened(specs(c=1, a=1, b=1), [*entries("b", 2), *entries("c", 2), *entries("a", 2)])
    assert order(run(store, 6)) == "abcabc"


# Shares by cost


def shares(picked: Sequence[Reservation]) -> dict[str, float]:
    taken = {each.queue: 0 for each in picked}
    for each in picked:
        taken[each.queue] += each.charge[GPU]
    return {name: amount / sum(taken.values()) for name, amount in taken.items()}


def test_by_cost_large_and_small_jobs_share_the_counted_resource() -> None:
    jobs = [*entries("a", 400, gpu=8), *entries("b", 400, gpu=1)]
    by_cost = list(run(opened(specs(a=1, b=1), jobs), 90, 128, cost=GPU, heads=128))
    assert shares(by_cost) == {"a": 0.5, "b": 0.5}
    by_pick = list(run(opened(specs(a=1, b=1), jobs), 90, 128, heads=128))
    assert shares(by_pick)["a"] == pytest.approx(8 / 9)


@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("weights", [(5, 3, 1, 1), (1, 1, 1, 1), (100, 1, 1, 1), (9, 7, 4, 2)])
def test_cost_by_gpu_keeps_every_prefix_within_one_largest_job_of_the_share(
    weights: tuple[int, ...], batch: int
) -> None:
    queues = letters(weights)
    sizes = {"a": (8, 1, 4), "b": (1, 2, 8, 4), "c": (8,), "d": (2, 1, 1, 8, 4, 2)}
    jobs = [
        entry(f"{name}-{number:04}", name, START + number, gpu=sizes[name][number * number % len(sizes[name])])
        for name in queues
        for number in range(150)
    ]
    picked = list(run(opened(specs(**queues), jobs), 150, batch, cost=GPU, heads=150 if batch > 1 else 2))
    assert len(picked) == 150
    taken = dict.fromkeys(queues, 0)
    for each in picked:
        taken[each.queue] += each.charge[GPU]
        for name, weight in queues.items():
            assert abs(taken[name] - sum(taken.values()) * weight / sum(weights)) <= 8


def test_a_job_without_the_counted_resource_costs_1() -> None:
    store = opened(specs(a=1, b=1), [*entries("a", 4), *entries("b", 4, gpu=1)])
    assert order(run(store, 8, cost=GPU)) == "abababab"


# Joining, leaving, changes of weight


def test_an_idle_queue_gains_no_credit() -> None:
    store = opened(specs(a=1, b=1), entries("a", 400))
    assert order(run(store, 300, 50, heads=50)) == "a" * 300
    store.put(entries("b", 20))
    picked = order(run(store, 20))
    assert picked.count("b") == 10
    assert "bbb" not in picked


def test_queue_with_a_lowered_weight_soon_gets_its_new_share() -> None:
    light = {f"q{number:02}": 1 for number in range(50)}
    jobs = [each for name in ("heavy", *light) for each in entries(name, 60)]
    store = opened(specs(heavy=1000, **light), jobs)
    list(run(store, 40, 40, heads=40))
    store.configure(specs(heavy=1, **light), None)
    names = [each.queue for each in run(store, 3 * 51, 51, heads=60)]
    assert "heavy" in names[:102]
    assert all(names.count(name) in (2, 3, 4) for name in light)


@pytest.mark.parametrize("deleted", [False, True])
def test_a_heavy_queue_that_leaves_behind_its_share_loses_its_claim(deleted: bool) -> None:
    store = opened(specs(a=1, b=1, c=998), [*entries("a", 90), *entries("b", 90), *entries("c", 700)])
    picked = order(run(store, 520, 130, heads=130))
    assert "a" in picked
    assert "b" not in picked
    if deleted:
        store.configure(specs(a=1, b=1), None)
    else:
        store.remove(each.key for each in entries("c", 700))
    after = order(run(store, 40, 5, heads=128))
    assert after.count("a") == pytest.approx(20, abs=2)


def test_queue_that_runs_out_of_jobs_changes_few_other_accounts() -> None:
    views = [
        QueueSnapshot(
            spec=spec(name, weight=1 + number % 5),
            usage={},
            waiting=4,
            heads=tuple(WaitingEntry(each, 4 * number + version) for version, each in enumerate(entries(name, 4))),
        )
        for number, name in enumerate(f"q{number:03}" for number in range(1000))
    ]
    shown = Snapshot(epoch=1, revision=1, pool=None, pool_usage={}, queues=tuple(views))
    picks = choose(shown, START, 4000, "jobs").picks
    assert len(picks) == 4000
    assert sum(len(pick.accounts) for pick in picks) < 3 * len(picks)


def test_a_queue_with_one_job_at_a_time_gets_no_more_than_its_share() -> None:
    store = opened(specs(a=1, b=3), entries("b", 400))
    picked = ""
    for number in range(100):
        store.put([entry(f"a-{number}", "a", START + number)])
        picked += order(run(store, 3))
    assert picked.count("a") <= 76


# A queue blocked by its own quota neither gains nor pays


@pytest.mark.parametrize("batch", BATCHES)
def test_queue_blocked_by_its_quota_neither_gains_nor_pays(batch: int) -> None:
    queues = [spec("a", 5, jobs=2), *specs(b=1, c=1)]
    store = opened(queues, [each for name in "abc" for each in entries(name, 20)])
    assert order(run(store, 8, batch, heads=20)) == "aabcbcbc"
    frozen = store.snapshot(0).queues[0].account
    assert frozen.weight == 0
    list(run(store, 8, batch, heads=20))
    assert store.snapshot(0).queues[0].account == frozen
    store.remove([key("a-0000"), key("a-0001")])
    assert order(run(store, 4, batch, heads=20)).count("a") == 2


def test_closed_queue_gets_no_picks() -> None:
    store = opened([replace(spec("a", 5), open=False), spec("b")], [*entries("a", 2), *entries("b", 2)])
    assert order(run(store, 9)) == "bb"


@pytest.mark.parametrize(("quota", "pool"), [({"gpu": 4}, None), ({}, {GPU: 4})])
def test_a_job_that_can_never_run_blocks_no_other_job(quota: dict[str, int], pool: Amounts | None) -> None:
    store = opened([spec("a", **quota)], [entry("huge", submitted=START - 1, gpu=5), *entries("a", 2, gpu=2)], pool)
    assert [each.key.name for each in run(store, 9)] == ["a-0000", "a-0001"]


# A queue blocked by the pool keeps its turn, then holds the pool's only reserved room


def stream(patience: float, steps: int, seconds: float) -> list[str]:
    """Return the jobs admitted to a full pool of 8 GPUs.

    A 1-GPU job ends in each step, and one 8-GPU job waits among a stream of 1-GPU jobs.
    """
    store = opened(specs(large=1, small=1), [*entries("small", steps + 20, gpu=1)], {GPU: 8})
    running = [each.key for each in run(store, 8, 8, cost=GPU)]
    store.put([entry("large-job", "large", gpu=8)])
    admitted: list[str] = []
    for step in range(steps):
        if running:
            store.remove([running.pop(0)])
        batch = choose(store.snapshot(4), START + step * seconds, 8, PickRules(cost=GPU, longest_patience=patience))
        for each in commit(store, batch).reservations:
            admitted.append(each.key.name)
            running.append(each.key)
    return admitted


def test_a_queue_with_only_unrunnable_known_jobs_needs_more_entries() -> None:
    hopeless = [entry(f"hopeless-{number}", "a", submitted=START + number, gpu=9) for number in range(4)]
    store = opened([spec("a")], [*hopeless, entry("small", "a", submitted=START + 9, gpu=1)], pool={GPU: 8})
    assert Picker(store.snapshot(4), PickRules()).only_unrunnable
    assert not Picker(store.snapshot(5), PickRules()).only_unrunnable
    assert [pick.waiting.entry.key.name for pick in choose(store.snapshot(5), START, 9, "jobs").picks] == ["small"]
    everything = opened([spec("a")], hopeless, pool={GPU: 8})
    assert not Picker(everything.snapshot(4), PickRules()).only_unrunnable


def test_large_job_is_overtaken_at_most_for_patience_seconds() -> None:
    admitted = stream(12.0, 40, 2)
    assert admitted.index("large-job") == 6


def test_reserved_room_is_only_what_the_job_needs() -> None:
    queues = specs(gpus=1, other=1)
    waiting = [entry("large", "gpus", gpu=8, cpu=2), *entries("other", 9, cpu=2)]
    store = opened(queues, waiting, {GPU: 8, "cpu": 8})
    held = reservation("runs", "other", gpu=1)
    store.rebuild(2, [held], waiting)
    picks = choose(store.snapshot(9), START, 9, PickRules(cost=GPU, longest_patience=0.0)).picks
    names = [pick.waiting.entry.key.name for pick in picks]
    assert names == ["other-0000", "other-0001", "other-0002"]


def test_removed_job_releases_its_reserved_room() -> None:
    waiting = [entry("large", "a", gpu=8), *entries("b", 20, gpu=1)]
    store = opened(specs(a=1, b=1), waiting, {GPU: 8})
    store.rebuild(2, [reservation("runs", "b", gpu=4)], waiting)

    def picks() -> int:
        batch = choose(store.snapshot(9), START, 9, PickRules(cost="jobs", longest_patience=0.0))
        return len(commit(store, batch).reservations)

    assert [picks(), picks()] == [1, 0]
    store.remove([key("large")])
    assert picks() == 3


# Invariants


@st.composite
def situations(draw: st.DrawFn) -> MemoryStore:
    """Generate a store with queues, quotas, a pool, running jobs, and waiting jobs of mixed size."""
    sizes = st.integers(0, 6)
    names = "abcde"[: draw(st.integers(1, 5))]
    queues = [
        QueueSpec(
            name=name,
            weight=draw(st.integers(1, 20)),
            open=draw(st.sampled_from([True, True, True, False])),
            quota=draw(st.dictionaries(st.sampled_from(["jobs", GPU, "cpu"]), st.integers(0, 20))),
        )
        for name in names
    ]
    waiting = [
        entry(f"{name}-{number}", name, START + number, draw(st.integers(-1, 1)), gpu=draw(sizes), cpu=draw(sizes))
        for name in names
        for number in range(draw(st.integers(0, 12)))
    ]
    room = st.integers(0, 40)
    closed = st.fixed_dictionaries({"cpu": room, OTHERS: st.just(0)})
    pool = draw(st.none() | st.fixed_dictionaries({GPU: room, "cpu": room}) | closed)
    store = MemoryStore(unmarked)
    store.rebuild(1, [reservation(f"runs-{name}", name, gpu=draw(sizes)) for name in names], waiting)
    store.configure(queues, pool)
    return store


def within(limits: Amounts, before: Amounts, after: Amounts) -> bool:
    """Return whether no usage went beyond a limit that it had been within before."""
    return all(after.get(name, 0) <= max(most, before.get(name, 0)) for name, most in limits.items())


@given(store=situations(), batch=st.integers(1, 20), cost=st.sampled_from(["jobs", GPU]))
def test_usage_stays_within_quota_and_pool_and_lags_sum_to_zero(store: MemoryStore, batch: int, cost: str) -> None:
    before = store.snapshot(0)
    for _ in run(store, 60, batch, cost, heads=12):
        assert sum(lags(store.snapshot(0)).values()) == pytest.approx(0, abs=1e-6)
    after = store.snapshot(99)
    for old, new in zip(before.queues, after.queues, strict=True):
        assert within(new.spec.quota, old.usage, new.usage)
    assert within(after.pool or {}, before.pool_usage, after.pool_usage)
    assert choose(after, START, 9, cost).picks == ()


def picks_in_batches(store: MemoryStore, batch: int, cost: str, heads: int) -> tuple[list[Reservation], Snapshot]:
    return list(run(store, 60, batch, cost, heads=heads)), store.snapshot(99)


@given(store=situations(), batch=st.integers(2, 20), cost=st.sampled_from(["jobs", GPU]), heads=st.integers(12, 15))
def test_picks_do_not_depend_on_the_batch_size(store: MemoryStore, batch: int, cost: str, heads: int) -> None:
    snapshot = store.snapshot(99)
    twin = MemoryStore(unmarked)
    twin.rebuild(1, store.reservations().values(), [each.entry for view in snapshot.queues for each in view.heads])
    twin.configure([view.spec for view in snapshot.queues], snapshot.pool)
    picked, after = picks_in_batches(store, 1, cost, heads)
    same, after_same = picks_in_batches(twin, batch, cost, heads)
    assert same == picked
    assert after_same.clock == after.clock
    assert [view.account for view in after_same.queues] == [view.account for view in after.queues]


@given(store=situations())
def test_a_queue_that_always_fits_is_served_beside_blocked_ones(store: MemoryStore) -> None:
    queues = [view.spec for view in store.snapshot(0).queues]
    store.configure([*queues, spec("z")], store.snapshot(0).pool)
    store.put(entries("z", 1))
    assert "z" in order(run(store, 100, 10, heads=15))


@pytest.mark.parametrize("limit", [0, -1])
def test_choose_makes_no_picks_beyond_the_limit(limit: int) -> None:
    store = opened(specs(a=1), entries("a", 3))
    assert choose(store.snapshot(9), START, limit, "jobs").picks == ()
    assert choose(store.snapshot(9), START, 2, "jobs").picks == choose(store.snapshot(9), START, 3, "jobs").picks[:2]


def test_empty_queues_give_no_picks() -> None:
    assert choose(opened([]).snapshot(9), START, 9, "jobs").picks == ()
    assert choose(opened(specs(a=1)).snapshot(9), START, 9, "jobs").picks == ()
