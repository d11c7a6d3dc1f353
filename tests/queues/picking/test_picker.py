"""The picker: updates by differences, entries on request, refunds, bypasses within a queue, cohorts, and lags."""

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crds.keys import JobKey
from crds.resources.amounts import OTHERS, Amounts
from queues.pick_cycle import PickCycle
from queues.picking import quotas
from queues.picking.fair_share import lag
from queues.picking.picker import Picker
from queues.rules import Patience, PickRules
from queues.store import IdleGrowth
from queues.values import Batch, Entry, OvertakenJob, QueueSpec
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
    resources,
    spec,
    specs,
)

EVERYTHING = 99
PLAIN = PickRules()


def names(store: MemoryStore, rules: PickRules = PLAIN, limit: int = 99) -> list[str]:
    """Return the names of the jobs that would be picked next."""
    return [pick.waiting.entry.key.name for pick in choose(store.snapshot(EVERYTHING), START, limit, rules).picks]


def admit(store: MemoryStore, rules: PickRules = PLAIN, limit: int = 99) -> list[str]:
    """Admit the jobs that are picked next, and return their names."""
    committed = commit(store, choose(store.snapshot(EVERYTHING), START, limit, rules))
    assert not committed.refused
    return [each.key.name for each in committed.reservations]


# A picker that is updated and used again

QUEUES = "abcdef"


@st.composite
def queue_specs(draw: st.DrawFn) -> list[QueueSpec]:
    limits = st.dictionaries(st.sampled_from(["jobs", GPU, "cpu"]), st.integers(0, 12))
    return [
        QueueSpec(
            name=name,
            weight=draw(st.integers(1, 9)),
            open=draw(st.sampled_from([True, True, True, False])),
            quota=draw(limits),
            cohort=draw(st.sampled_from(["", "red", "red", "blue"])),
            borrowing=draw(limits),
            strict=draw(st.booleans()),
        )
        for name in QUEUES[: draw(st.integers(1, 6))]
    ]


@st.composite
def jobs(draw: st.DrawFn) -> Entry:
    queue, number = draw(st.sampled_from(QUEUES)), draw(st.integers(0, 6))
    made = entry(f"{queue}-{number}", queue, START + draw(st.integers(0, 9)), draw(st.integers(-1, 1)))
    demand = {"jobs": 1} | resources(gpu=draw(st.integers(0, 4)), cpu=draw(st.integers(0, 4)))
    most, step = draw(st.sampled_from([0, 0, 2, 5])), draw(st.integers(1, 2))
    unit = resources(gpu=draw(st.integers(0, 2)), cpu=draw(st.integers(0, 1)))
    return replace(made, demand=demand, returning=draw(st.booleans()), size=1, unit=unit, most=most, step=step)


AMOUNT = st.integers(0, 12)
POOLS = (
    st.none()
    | st.fixed_dictionaries({GPU: AMOUNT, "cpu": AMOUNT})
    | st.fixed_dictionaries({"cpu": AMOUNT, OTHERS: st.just(0)})
)


def stands(store: MemoryStore, batch: Batch) -> int:
    """Commit a batch, and check that all of it was admitted and nothing else changed. Return the change number of the
    commit.
    """
    committed = commit(store, batch)
    assert (committed.refused, committed.picked, committed.alone) == ("", len(batch.picks), True)
    return committed.change


def step(store: MemoryStore, data: st.DataObject) -> None:
    """Change the store at random between two rounds of picks."""
    match data.draw(st.sampled_from(["put", "put", "remove", "release", "grow", "configure", "nothing"])):
        case "put":
            store.put(data.draw(st.lists(jobs(), max_size=6)))
        case "remove":
            store.remove([each.key for each in data.draw(st.lists(jobs(), max_size=3))])
        case "release":
            store.remove(list(store.reservations())[: data.draw(st.integers(0, 3))])
        case "grow":
            grow(store, data.draw(st.integers(0, 3)))
        case "configure":
            store.configure(data.draw(queue_specs()), data.draw(POOLS))


def grow(store: MemoryStore, count: int) -> None:
    """Give some admitted jobs an idle worker each, for which their queues are to pay."""
    unit, snapshot = {GPU: 1}, store.snapshot(0)
    held = list(store.reservations().values())[:count]
    store.grow_idle(
        [IdleGrowth(key=each.key, attempt=each.attempt, grown=each.grown, workers=1, charge=unit) for each in held],
        snapshot.epoch,
        snapshot.revision,
    )
    idle = [each for each in store.reservations().values() if each.idle]
    plain = [entry(each.key.name, each.queue, kind="grow") for each in idle]
    store.put(
        [
            replace(waiting, unit=unit, idle=each.idle, grown=each.grown)
            for waiting, each in zip(plain, idle, strict=True)
        ]
    )


Orders = list[tuple[str, str, JobKey]]
"""What happens to the claims of queues: the method of `OpenClaims`, the queue, and the job."""


@st.composite
def orders(draw: st.DrawFn, store: MemoryStore) -> Orders:
    """Return changes of claims, mostly for the first jobs of queues."""
    found = []
    views = store.snapshot(2).queues
    for view in draw(st.lists(st.sampled_from(views), max_size=2)) if views else ():
        job = draw(st.sampled_from(view.heads)).entry.key if view.heads else key("unknown")
        found.append((draw(st.sampled_from(["open", "open", "hasten", "close"])), view.spec.name, job))
    return found


def apply(found: Orders, picker: Picker, now: float) -> None:
    for method, queue, job in found:
        match method:
            case "open":
                picker.claims.open(queue, job, now)
            case "hasten":
                picker.claims.hasten(queue, job, now)
            case _:
                picker.claims.close(queue)


@pytest.mark.proof
@settings(max_examples=150, deadline=None)
@given(data=st.data(), cost=st.sampled_from(["jobs", GPU]))
def test_a_picker_updated_by_differences_picks_what_a_new_one_picks(data: st.DataObject, cost: str) -> None:
    rules = PickRules(cost=cost)
    store = opened(data.draw(queue_specs()), data.draw(st.lists(jobs(), max_size=30)), data.draw(POOLS))
    snapshot, now = store.snapshot(EVERYTHING), START
    picker, change = Picker(snapshot, rules), snapshot.change
    for _ in range(data.draw(st.integers(1, 8))):
        now += data.draw(st.sampled_from([0, 1, 40]))
        step(store, data)
        picker.update(store.snapshot(EVERYTHING, since=change, known_heads=picker.needs_entries))
        limit, found = data.draw(st.integers(1, 12)), data.draw(orders(store))
        within = {name: data.draw(st.sampled_from([1.0, 30.0])) for name in data.draw(st.sets(st.sampled_from(QUEUES)))}
        hold = data.draw(st.sampled_from([math.inf, 1.0, 30.0]))
        patience = Patience(data.draw(st.sampled_from([0.0, 1.0, 30.0])), within, hold)
        new = Picker(store.snapshot(EVERYTHING), rules)
        for each in (picker, new):
            each.patience = patience
            apply(found, each, now)
        batch, afresh = picker.picks(now, limit), new.picks(now, limit)
        assert (batch.picks, batch.settlement) == (afresh.picks, afresh.settlement)
        assert picker.claims.keys() == new.claims.keys()
        change = stands(store, batch)


class Watchful(quotas.Cohort):
    """A cohort whose members all bid again after every pick."""

    roomy = property(lambda _: False, lambda *_: None)  # type: ignore[assignment]


@pytest.mark.proof
@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_a_roomy_cohort_changes_no_pick(data: st.DataObject) -> None:
    limits = st.fixed_dictionaries({GPU: st.integers(0, 30), "cpu": st.integers(0, 30)})
    borrowing = st.dictionaries(st.sampled_from([GPU, "cpu"]), st.integers(0, 12))
    queues = [
        replace(QueueSpec(name=name, quota=data.draw(limits), borrowing=data.draw(borrowing)), cohort="x")
        for name in QUEUES[: data.draw(st.integers(2, 4))]
    ]
    store = opened(queues, data.draw(st.lists(jobs(), max_size=40)))
    snapshot = store.snapshot(EVERYTHING)
    picker, change = Picker(snapshot, PLAIN), snapshot.change
    for _ in range(data.draw(st.integers(1, 6))):
        store.put(data.draw(st.lists(jobs(), max_size=6)))
        store.remove(list(store.reservations())[: data.draw(st.integers(0, 5))])
        picker.update(store.snapshot(EVERYTHING, since=change, known_heads=picker.needs_entries))
        found = data.draw(orders(store))
        apply(found, picker, START)
        batch = picker.picks(START, 9)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(quotas, "Cohort", Watchful)
            watchful = Picker(store.snapshot(EVERYTHING), PLAIN)
            apply(found, watchful, START)
            assert batch.picks == watchful.picks(START, 9).picks
        new = Picker(store.snapshot(EVERYTHING), PLAIN)
        apply(found, new, START)
        assert batch.picks == new.picks(START, 9).picks
        change = stands(store, batch)


@given(heads=st.integers(1, 4), limit=st.integers(1, 9))
def test_a_picker_that_knows_few_entries_needs_more_in_time(heads: int, limit: int) -> None:
    rules = PickRules(cost="jobs")
    queues = {"a": 5, "b": 2, "c": 1}
    waiting = [each for name in queues for each in entries(name, 12)]
    store = opened(specs(**queues), waiting)
    picker = Picker(store.snapshot(heads), rules)
    chosen = ""
    while (batch := picker.picks(START, limit)).picks:
        change = stands(store, batch)
        chosen += "".join(pick.waiting.entry.queue for pick in batch.picks)
        picker.update(store.snapshot(heads, since=change, known_heads=picker.needs_entries))
    whole = choose(opened(specs(**queues), waiting).snapshot(EVERYTHING), START, 99, rules).picks
    assert chosen == "".join(pick.waiting.entry.queue for pick in whole)


@pytest.mark.proof
@given(data=st.data(), heads=st.integers(1, 6))
def test_entries_added_between_picks_give_the_picks_of_a_whole_snapshot(data: st.DataObject, heads: int) -> None:
    rules = PickRules()
    queues, pool = data.draw(queue_specs()), data.draw(POOLS)
    alike = [{"jobs": 1} | resources(gpu=number % 3, cpu=1) for number in range(len(QUEUES))]
    drawn = data.draw(st.lists(jobs(), max_size=40))
    waiting = [replace(each, demand=alike[QUEUES.index(each.queue)]) for each in drawn]
    store, twin = opened(queues, waiting, pool), opened(queues, waiting, pool)
    picker = Picker(store.snapshot(heads), rules)
    for _ in range(20):
        batch = picker.picks(START, data.draw(st.integers(1, 5)))
        first_request = picker.request_entries(99)
        ahead = picker.picks(START, data.draw(st.integers(0, 5)))
        late = picker.request_entries(99)
        assert not first_request.keys() & late.keys()
        for each, requested in ((batch, first_request), (ahead, late)):
            picks = choose(twin.snapshot(EVERYTHING), START, len(each.picks), rules).picks
            assert [pick.waiting.entry for pick in each.picks] == [pick.waiting.entry for pick in picks]
            assert not commit(twin, choose(twin.snapshot(EVERYTHING), START, len(each.picks), rules)).refused
            committed = commit(store, replace(each, heads=heads, needs_entries=requested))
            assert not committed.refused
            unseen = data.draw(st.sets(st.sampled_from(QUEUES), max_size=2))
            picker.add_entries(
                requested, {view.queue: view for view in committed.next_entries if view.queue not in unseen}
            )
    assert picker.lacks_entries or not choose(twin.snapshot(EVERYTHING), START, 1, rules).picks


def test_batch_ends_where_the_next_entry_of_a_queue_is_unknown() -> None:
    store = opened(specs(a=1, b=1), [*entries("a", 5), *entries("b", 2)])
    picker = Picker(store.snapshot(3), PickRules())
    batch = picker.picks(START, 99)
    assert [pick.waiting.entry.queue for pick in batch.picks] == list("abababa"[:5])
    assert set(picker.needs_entries) == {"a"}
    assert picker.picks(START, 99).picks == ()


def test_refund_reverses_a_pick() -> None:
    rules = PickRules(cost=GPU)
    waiting = [*entries("a", 9, gpu=4), *entries("b", 9, gpu=4)]
    untouched = choose(opened(specs(a=2, b=1), waiting).snapshot(EVERYTHING), START, 6, rules)
    store = opened(specs(a=2, b=1), waiting)
    picker = Picker(store.snapshot(EVERYTHING), rules)
    assert order(commit(store, picker.picks(START, 1)).reservations) == "a"
    picker.settle("a", -4)
    queues = [pick.waiting.entry.queue for pick in picker.picks(START, 6).picks]
    assert sorted(queues) == sorted(pick.waiting.entry.queue for pick in untouched.picks)


@pytest.mark.parametrize("weights", [{"a": 2, "b": 1}, {"a": 1, "b": 5, "c": 2}])
def test_refund_to_a_queue_without_another_job_reverses_the_pick(weights: dict[str, int]) -> None:
    rules = PickRules(cost=GPU)
    waiting = [each for name in weights for each in entries(name, 1 if name == "a" else 9, gpu=4)]
    store = opened(specs(**weights), waiting)
    snapshot = store.snapshot(EVERYTHING)
    picker = Picker(snapshot, rules)
    while order(commit(store, picker.picks(START, 1)).reservations) != "a":
        pass
    picked = lags(store)
    store.remove([waiting[0].key])
    store.put(waiting[:1])
    picker.settle("a", -4)
    picker.update(store.snapshot(EVERYTHING, since=snapshot.change))
    assert order(commit(store, picker.picks(START, 1)).reservations) == "a"
    assert lags(store) == picked


def lags(store: MemoryStore) -> list[float]:
    """Return how far each queue is behind its share."""
    snapshot = store.snapshot(0)
    return [lag(view.account, snapshot.clock) for view in snapshot.queues]


# Limits outside of the queues


@given(
    refused=st.sets(st.sampled_from([each.key for name in "ab" for each in entries(name, 20, gpu=1)])),
    strict=st.booleans(),
    limit=st.integers(1, 9),
    most=st.integers(1, 12),
    pool=st.sampled_from([None, {GPU: 13}]),
)
def test_jobs_without_room_outside_of_the_queues_are_as_if_they_did_not_wait(
    refused: set[JobKey], strict: bool, limit: int, most: int, pool: Amounts | None
) -> None:
    waiting = [*entries("a", 20, gpu=1), *entries("b", 20, gpu=1)]
    others = [each for each in waiting if each.key not in refused]
    queues = [replace(each, strict=strict) for each in specs(a=1, b=2)]

    def rounds(waiting: list[Entry]) -> Iterator[set[JobKey]]:
        """Yield the jobs that were admitted after each round. A refused job then waits no more."""
        store, asked = opened(queues, waiting, pool), set[JobKey]()
        cycle = PickCycle(store, PLAIN, outside=lambda key, _: not (asked.add(key) or key in refused))
        while True:
            picked = cycle.run(START, limit, most).picked
            if not picked and not asked & refused:
                return
            store.remove(sorted(asked & refused))
            asked.clear()
            yield set(store.reservations())

    found, alone = [*rounds(waiting)], [*rounds(others)]
    assert not (found and found[-1] & refused)
    assert len(found[-1] if found else ()) == len(alone[-1] if alone else ()) == min(len(others), 13 if pool else 99)


def test_a_queue_whose_known_jobs_have_no_room_outside_of_the_queues_stops_no_other() -> None:
    store = opened(specs(a=1, b=1), [*entries("a", 20, gpu=1), *entries("b", 4, gpu=1)])
    cycle = PickCycle(store, PLAIN, outside=lambda key, _: key.name.startswith("b"))
    assert cycle.run(START, 99, 4).picked == 4


# Strict order and bypasses


def test_strict_queue_waits_for_its_first_runnable_job() -> None:
    waiting = [entry("huge", gpu=9), entry("large", submitted=START + 1, gpu=8), *entries("a", 3, gpu=1)]
    waiting = [replace(each, submitted=START + number) for number, each in enumerate(waiting)]
    for strict, expected in ((True, []), (False, ["a-0000", "a-0001", "a-0002"])):
        queue = replace(spec("a", gpu=8), strict=strict)
        store = opened([queue], waiting)
        store.rebuild(2, [reservation("runs", gpu=2)], waiting)
        assert names(store) == expected


@pytest.mark.parametrize("pool", [None, {GPU: 8}])
@pytest.mark.parametrize("seconds", [0, 1, 5])
def test_a_large_job_is_passed_while_its_patience_lasts_and_then_waited_for(seconds: int, pool: Amounts | None) -> None:
    patience = Patience(seconds, {"a": seconds})
    waiting = [entry("large", submitted=START - 1, gpu=8), *entries("a", 40, gpu=1)]
    store = opened([spec("a", **({} if pool else {"gpu": 8}))], waiting, pool)
    store.rebuild(2, [reservation(f"runs-{number}", gpu=1) for number in range(8)], waiting)
    running = [each.name for each in store.reservations()]
    admitted: list[str] = []
    for now in range(30):
        store.remove([key(running.pop(0))] if running else [])
        batch = choose(store.snapshot(EVERYTHING), START + now, 99, PLAIN, patience)
        taken = [each.key.name for each in commit(store, batch).reservations]
        admitted += taken
        running += taken
    assert admitted.index("large") == max(1, seconds)


def test_jobs_pass_a_late_one_if_they_leave_what_it_needs() -> None:
    """The pool has other resources, other jobs request less than is free beside the first job, and the queue has a
    quota of jobs.
    """
    first = entry("first", submitted=START - 9, gpu=2, cpu=1)
    others = [*entries("cpu", 40, cpu=1), *(replace(each, queue="a") for each in entries("gpu", 9, gpu=1))]
    waiting = [first, *(replace(each, queue="a") for each in others)]
    store = opened([spec("a", gpu=8, cpu=30)], waiting, held=[reservation("runs", "a", gpu=7)])
    late = OvertakenJob(key=first.key, times=1, since=START, late=True)
    store._content.overtaken["a"] = late
    assert names(store) == [f"cpu-{number:04}" for number in range(29)], "one GPU and one CPU are left to the first job"
    store.remove([key("runs")])
    assert names(store)[:1] == ["first"]


@pytest.mark.parametrize("kept", [False, True])
def test_room_of_a_late_job_counts_once_if_the_pool_has_reserved_it(kept: bool) -> None:
    first = entry("first", "a", START - 9, gpu=8, cpu=2)
    store = opened(specs(a=1, b=1), [first, *(entry(f"cpu-{n}", "a", START + n, cpu=1) for n in range(4))],
                   {GPU: 8, "cpu": 4}, held=[reservation("runs", "b", gpu=4)])  # fmt: skip
    demand = first.demand if kept else None
    store._content.overtaken["a"] = OvertakenJob(key=first.key, times=1, since=START, kept=demand, late=True)
    assert names(store) == ["cpu-0", "cpu-1"], "two of the four CPUs are left to the first job"


def test_a_first_job_that_leaves_is_late_no_more() -> None:
    first, next_one = entry("first", submitted=START - 9, gpu=8), entry("next", submitted=START - 8, gpu=8)
    store = opened([spec("a", gpu=8)], [first, next_one, *entries("a", 9, gpu=1)], held=[reservation("runs", gpu=7)])
    patience = Patience(30, {"a": 10})
    cycle = PickCycle(store, PLAIN, ages=lambda _: {"a": [10.0]})
    assert cycle.run(START, 99, 99).picked == 1
    store.remove([key("a-0000")])
    assert cycle.run(START + 10, 99, 99).picked == 0
    assert choose(store.snapshot(99), START + 10, 9, PLAIN, patience).picks == (), (
        "another process also sees that the job is late"
    )
    store.remove([first.key])
    assert cycle.run(START + 10, 99, 99).picked == 1, "the next job has its own patience"


def test_job_that_does_not_fit_is_bypassed_by_one_that_does() -> None:
    waiting = [
        entry("large", submitted=START - 1, gpu=8),
        entry("mid", gpu=4),
        entry("small", submitted=START + 1, gpu=1),
    ]
    store = opened([spec("a", gpu=8)], waiting)
    store.rebuild(2, [reservation("runs", gpu=5)], waiting)
    assert names(store) == ["small"]


def test_a_returning_job_goes_before_all_that_never_ran() -> None:
    urgent = entry("urgent", submitted=START - 86_400, priority=1_000_000)
    back = replace(entry("back", submitted=START), returning=True)
    assert names(opened(specs(a=1), [urgent, entry("old"), back])) == ["back", "urgent", "old"]


# Cohorts


def member(name: str, quota: int, **borrowing: int) -> QueueSpec:
    return replace(spec(name, gpu=quota), cohort="team", borrowing=resources(**borrowing))


def test_queue_borrows_unused_quota_of_its_cohort() -> None:
    waiting = entries("a", 9, gpu=1)
    assert len(names(opened([member("a", 2), member("b", 3)], waiting))) == 5
    assert len(names(opened([member("a", 2, gpu=1), member("b", 3)], waiting))) == 3
    assert len(names(opened([member("a", 2), replace(member("b", 3), open=False)], waiting))) == 5
    assert len(names(opened([member("a", 2), replace(member("b", 3), cohort="other")], waiting))) == 2


def test_resource_without_an_own_quota_is_unlimited_in_a_cohort() -> None:
    waiting = entries("a", 4, gpu=1, cpu=1000)
    assert len(names(opened([member("a", 4), replace(spec("b", cpu=1), cohort="team")], waiting))) == 4


def test_a_lender_gets_its_quota_back_before_another_loan() -> None:
    waiting = [*entries("a", 9, gpu=1), entry("own", "b", gpu=3)]
    store = opened([member("a", 2), member("b", 3)], waiting)
    store.rebuild(2, [reservation(f"runs-{number}", "a", gpu=1) for number in range(5)], waiting)
    assert names(store) == []
    for number in range(3):
        store.remove([key(f"runs-{number}")])
        expected = ["own"] if number == 2 else []
        assert names(store) == expected


def test_all_lenders_get_their_quota_back_before_another_loan() -> None:
    waiting = [*entries("a", 9, gpu=1), entry("own-b", "b", gpu=3), entry("own-c", "c", gpu=3)]
    store = opened([replace(member("a", 1), weight=9), member("b", 3), member("c", 3)], waiting)
    assert sorted(names(store)) == ["a-0000", "own-b", "own-c"]
    store.rebuild(2, [reservation("runs", "a", gpu=1)], waiting)
    assert names(store) == ["own-b", "own-c"]


@pytest.mark.parametrize(("strict", "expected"), [(False, []), (True, ["a-0000"])])
def test_job_that_may_bypass_one_beyond_its_quota_reclaims_lent_quota(strict: bool, expected: list[str]) -> None:
    lender = replace(member("b", 4, gpu=0), strict=strict)
    waiting = [*entries("a", 9, gpu=1), entry("large", "b", gpu=4), entry("own", "b", START + 1, gpu=2)]
    store = opened([member("a", 4), lender], waiting)
    held = [reservation("mine", "b", gpu=2), *(reservation(f"runs-{number}", "a", gpu=1) for number in range(5))]
    store.rebuild(2, held, waiting)
    assert names(store) == expected
    store.remove([key("runs-0")])
    assert "own" in names(store) or strict


@pytest.mark.parametrize("kept", ["closed", "impossible", "beyond"])
def test_a_queue_that_cannot_run_in_its_own_quota_claims_nothing(kept: str) -> None:
    gpus = {"closed": 3, "impossible": 99, "beyond": 4}[kept]
    waiting = [*entries("a", 9, gpu=1), entry("own", "b", gpu=gpus)]
    store = opened([member("a", 2), replace(member("b", 3), open=kept != "closed")], waiting)
    store.rebuild(2, [reservation(f"runs-{number}", "a", gpu=1) for number in range(4)], waiting)
    assert names(store) == ["a-0000"]


# Lags


def test_lag_is_the_distance_from_the_share() -> None:
    weights = {"a": 5, "b": 3, "c": 1}
    store = opened(specs(**weights), [each for name in weights for each in entries(name, 60, gpu=3)])
    taken = [each[0] for each in admit(store, PickRules(cost=GPU), 40)]
    snapshot = store.snapshot(0)
    for view in snapshot.queues:
        name = view.spec.name
        behind = 3 * (len(taken) * weights[name] / 9 - taken.count(name))
        assert lag(view.account, snapshot.clock) == pytest.approx(behind, abs=1e-6)
    assert lag(snapshot.queues[0].account._replace(weight=0), snapshot.clock) == 0


# Room in the pool


def test_large_jobs_are_overtaken_one_at_a_time_and_all_start_in_the_end() -> None:
    rules = PickRules(cost=GPU, longest_patience=3.0)
    large = [entry(f"large-{name}", name, gpu=8) for name in "abcde"]
    store = opened(specs(a=1, b=2, c=3, d=4, e=5, z=1), entries("z", 300, gpu=1), {GPU: 8})
    running = admit(store, rules)
    store.put(large)
    remaining = {each.key.name for each in large}
    times: Counter[str] = Counter()
    steps = 0
    while remaining:
        store.remove([key(running.pop(0))])
        batch = choose(store.snapshot(EVERYTHING), START + steps, 99, rules)
        for pick in batch.picks:
            before = times.total()
            times.update({name: each.times - times[name] for name, each in pick.overtaken.items() if each})
            assert times.total() <= before + 1
        taken = [each.key.name for each in commit(store, batch).reservations]
        running += taken
        remaining -= set(taken)
        steps += 1
        assert steps < 200
