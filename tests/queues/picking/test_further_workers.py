"""The amount that a job takes at its turn: its least workers, and the further workers for which there is room."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crds.resources.amounts import Amounts
from queues.picking import further_workers
from queues.picking.backfill import JobEnds
from queues.picking.explain import explain
from queues.picking.further_workers import largest
from queues.picking.picker import Picker
from queues.rules import PickRules
from queues.values import Entry, OvertakenJob, QueueSpec
from tests.doubles.memory_store import MemoryStore
from tests.support.queues.builders import (
    GPU,
    START,
    choose,
    entries,
    entry,
    further,
    key,
    opened,
    reservation,
    spec,
    specs,
)

PLAIN = PickRules(cost="jobs")
BY_GPU = PickRules(cost=GPU)


def taken(store: MemoryStore, rules: PickRules = PLAIN, limit: int = 99) -> list[tuple[str, int]]:
    """Return the names of the next picks, and the number of GPUs that each pick takes."""
    picks = choose(store.snapshot(999), START, limit, rules).picks
    return [(pick.waiting.entry.key.name, pick.charge.get(GPU, 0)) for pick in picks]


def growth(name: str, least: int = 1, most: int = 0, queue: str = "a", submitted: float = START) -> Entry:
    """Return a request of an admitted job for further workers of 1 GPU each."""
    return further(entry(name, queue, submitted, kind="grow", gpu=least), most, size=least, gpu=1)


@given(most=st.integers(0, 60), step=st.integers(1, 9), room=st.integers(0, 70))
def test_amount_is_the_largest_multiple_of_the_step_that_is_accepted(most: int, step: int, room: int) -> None:
    assert largest(most, step, lambda units: units <= room) == max(range(0, min(most, room) + 1, step))


@pytest.mark.parametrize(
    ("quota", "pool", "gpus"),
    [({}, None, 11), ({"gpu": 9}, None, 8), ({}, {GPU: 8}, 8), ({"gpu": 9}, {GPU: 6}, 5), ({"gpu": 2}, {}, 2)],
)
def test_job_takes_as_many_steps_as_quota_and_pool_allow(
    quota: dict[str, int], pool: Amounts | None, gpus: int
) -> None:
    job = further(entry("job", gpu=2), most=9, step=3, size=2, gpu=1)
    [pick] = choose(opened([spec("a", **quota)], [job], pool).snapshot(9), START, 9, PLAIN).picks
    assert (pick.charge[GPU], pick.units, pick.size, pick.cost) == (gpus, gpus - 2, gpus, 1)


def test_further_workers_need_room_for_all_their_resources() -> None:
    job = further(entry("job", gpu=1, cpu=1), most=9, gpu=1, cpu=3)
    assert taken(opened([spec("a", cpu=8)], [job], {GPU: 20})) == [("job", 3)]


def test_all_or_none_waits_until_all_fit() -> None:
    whole = replace(entry("whole", gpu=4), size=4)
    assert taken(opened([spec("a", gpu=3)], [whole, growth("none", 4)], held=[reservation("none", "a")])) == []
    assert taken(opened([spec("a", gpu=4)], [whole])) == [("whole", 4)]


@pytest.mark.parametrize(("borrowing", "gpus"), [({}, 12), ({GPU: 2}, 10)])
def test_borrowed_workers_leave_what_others_claim(borrowing: dict[str, int], gpus: int) -> None:
    """The pick itself satisfies the job's own claim, so this claim keeps no further room free."""
    members = [
        QueueSpec(name="a", quota={GPU: 8}, borrowing=borrowing, cohort="team"),
        QueueSpec(name="b", quota={GPU: 8}, cohort="team"),
    ]
    job = further(entry("job", gpu=2), most=98, gpu=1)
    claimant = entry("claimant", "b", START + 1, gpu=4)
    assert taken(opened(members, [job, claimant])) == [("job", gpus), ("claimant", 4)]
    job = further(entry("job", gpu=2), most=10**9, gpu=10**6)
    picker = Picker(opened(members, [job]).snapshot(9), PLAIN)
    assert len(picker.picks(START, 9).picks) == 1
    cohort = picker.cohort("team")
    assert cohort is not None
    assert cohort.roomy, "workers without room must not slow down the picks"


def test_quota_borrowed_by_others_limits_the_further_workers() -> None:
    members = [QueueSpec(name=name, quota={GPU: 8}, cohort="team") for name in "ab"]
    job = further(entry("job", gpu=2), most=98, gpu=1)
    assert taken(opened(members, [job], held=[reservation("loan", "b", gpu=11)])) == [("job", 5)]


# Turns


def test_turn_that_the_least_has_won_does_not_go_to_more() -> None:
    """A job that takes 64 GPUs in the end is picked when a plain job of 64 GPUs would be picked."""
    plain, ranged = entry("job", "x", gpu=64), further(entry("job", "x", gpu=1), most=63, gpu=1)
    others = entries("y", 900, gpu=1)
    at = [
        [name for name, _ in taken(opened([spec("x", 1), spec("y", 9)], [job, *others]), BY_GPU, 600)].index("job")
        for job in (plain, ranged)
    ]
    assert at[0] == at[1] > 100


def test_pick_lets_no_other_queue_bid_again_while_there_is_room(monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = [further(entry(f"job-{number}", f"q{number % 50}", gpu=2), most=8, gpu=1) for number in range(150)]
    store = opened(specs(**{f"q{number}": 1 + number % 5 for number in range(50)}), jobs, {GPU: 2000})
    calls: list[int] = []
    monkeypatch.setattr(further_workers, "largest", lambda *found: calls.append(0) or largest(*found))
    assert taken(store, BY_GPU) == [(name, 10) for name, _ in taken(store, BY_GPU)]
    assert len(calls) / 2 < 50 + 4 * 99


@pytest.mark.parametrize(("job", "cost"), [(growth("job", 2, 9), 5), (growth("job", 1, 0), 1)])
def test_growth_costs_what_it_takes(job: Entry, cost: int) -> None:
    store = opened([spec("a", gpu=6)], [job], held=[reservation("job", "a", gpu=1)])
    [pick] = choose(store.snapshot(9), START, 9, BY_GPU).picks
    assert (pick.cost, pick.waiting.entry.kind) == (cost, "grow")
    assert choose(store.snapshot(9), START, 9, PLAIN).picks[0].cost == 1


def test_growth_needs_no_room_for_another_job() -> None:
    waiting = [entry("new", gpu=1), growth("job", submitted=START + 1)]
    store = opened([spec("a", gpu=9, jobs=1)], waiting, {"jobs": 1, GPU: 9}, [reservation("job", "a", gpu=1)])
    assert taken(store) == [("job", 1)]


def test_growth_goes_in_the_order_of_its_own_request() -> None:
    waiting = [entry("older", submitted=START + 1, gpu=1), growth("job", submitted=START + 2), entry("old", gpu=1)]
    store = opened([spec("a")], [*waiting, entry("young", submitted=START + 3)], held=[reservation("job", "a", gpu=1)])
    assert [name for name, _ in taken(store)] == ["old", "older", "job", "young"]


@pytest.mark.parametrize(("strict", "names"), [(True, []), (False, ["small"])])
def test_strict_queue_waits_for_a_growth(strict: bool, names: list[str]) -> None:
    waiting = [growth("job", 4), entry("small", submitted=START + 1, gpu=1)]
    queue = replace(spec("a", gpu=4), strict=strict)
    assert [name for name, _ in taken(opened([queue], waiting, held=[reservation("job", "a", gpu=1)]))] == names


# The pool's reservation


def reserve(store: MemoryStore, job: Entry) -> None:
    """Let the store have room reserved for a job."""
    store._content.overtaken[job.queue] = OvertakenJob(key=job.key, times=2, since=START - 9, kept=job.demand)


def test_further_workers_leave_the_reserved_room() -> None:
    urgent, job = entry("urgent", "x", gpu=6, cpu=2), further(entry("job", "y", gpu=1), most=9, gpu=1)
    store = opened(specs(a=1, x=1, y=1), [urgent, job], {GPU: 16, "cpu": 2}, [reservation("runs", gpu=7, cpu=1)])
    reserve(store, urgent)
    assert taken(store) == [("job", 3)]


def test_job_with_the_reservation_takes_its_own_room_and_more() -> None:
    job = further(entry("job", "x", gpu=6), most=9, step=2, gpu=1)
    store = opened(specs(a=1, x=1), [job, entry("small", gpu=1)], {GPU: 16}, [reservation("runs", gpu=11)])
    reserve(store, job)
    assert taken(store) == []
    store = opened(specs(a=1, x=1), [job], {GPU: 16}, [reservation("runs", gpu=5)])
    reserve(store, job)
    assert taken(store) == [("job", 10)]


def test_job_with_the_reservation_wins_its_turn_with_all_that_it_takes() -> None:
    """The job finds no room except its own reservation, so only the reservation lets the pick succeed."""
    job = further(entry("job", "x", gpu=40), most=24, gpu=1)
    store = opened(specs(x=1, y=2), [job, *entries("y", 24, gpu=1)], {GPU: 64})
    reserve(store, job)
    assert taken(store, BY_GPU)[:14] == [*((f"y-{number:04}", 1) for number in range(13)), ("job", 51)]


def test_passing_job_leaves_the_first_one_of_its_queue_its_quota() -> None:
    large = entry("large", "x", START - 9, gpu=4, cpu=2)
    job = further(entry("job", "x", gpu=1), most=9, gpu=1)
    store = opened([spec("x", gpu=8), spec("a")], [large, job], {"cpu": 2}, [reservation("runs", "a", cpu=2)])
    store._content.overtaken["x"] = OvertakenJob(key=large.key, times=1, since=START, kept=large.demand)
    assert taken(store, PickRules()) == [("job", 4)]


def test_loans_are_of_the_least_and_never_for_a_growth() -> None:
    large = entry("large", "x", START - 9, gpu=8)
    job, grows = further(entry("job", "b", gpu=1), most=9, gpu=1), growth("grows", queue="a")
    store = opened(specs(a=1, b=1, x=1), [large, job, grows], {GPU: 8}, [reservation("grows", "a", gpu=4)])
    store._content.overtaken["x"] = OvertakenJob(key=large.key, times=2, since=START - 9, impatient=True)
    picker = Picker(store.snapshot(9), BY_GPU)
    longest = {str(each.key): 1.0 for each in (job, grows)}
    ends = JobEnds(((START + 9, {GPU: 4}),), longest, frozenset("ab"))
    picker.prepare_loans(START, lambda: ends)
    picks = picker.picks(START, 9).picks
    assert [(pick.waiting.entry.key.name, pick.units) for pick in picks] == [("job", 0)]


# Queries


def test_explanation_of_a_growth_counts_no_further_job() -> None:
    store = opened([spec("a", gpu=4, jobs=1)], [growth("job", 2)], held=[reservation("job", "a", gpu=3)])
    place = store.place(key("job"))
    assert place is not None
    explanation = explain(Picker(store.snapshot(9), PLAIN), place, START)
    assert (explanation.code, explanation.numbers) == (
        "WaitingForQuota",
        "needs 2 nvidia.com/gpu; queue a: 1 of 4 nvidia.com/gpu free; 0 jobs ahead in queue a",
    )
    store.rebuild(2, [reservation("job", "a", gpu=2)], [growth("job", 2, 9)])
    place = store.place(key("job"))
    assert place is not None
    explanation = explain(Picker(store.snapshot(9), PLAIN), place, START)
    assert (explanation.code, explanation.numbers.split(";")[0]) == ("Next", "needs at least 2 nvidia.com/gpu")
