"""Stores give admitted jobs idle workers, for which a queue pays later or never."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from queues import errors
from queues.store import IdleGrowth, LoweredCharge, QueueStore
from queues.values import Batch, CommitResult, Entry, Pick, QueueSpec, Refusal, Reservation
from tests.queues.conftest import Place
from tests.support.queues.builders import GPU, commit, entry, key, reservation, spec, usage

WORKER = {GPU: 2, "pods": 1}


def held(
    name: str = "job", queue: str = "a", *, size: int = 2, grown: int = 0, idle: int = 0, attempt: int = 1
) -> Reservation:
    """Return the reservation of a job with `size` workers."""
    plain = reservation(name, queue, attempt, gpu=2 * size, pods=size)
    return replace(plain, size=size, grown=grown, idle=idle)


def idle(name: str = "job", *, workers: int = 1, grown: int = 0, attempt: int = 1) -> IdleGrowth:
    """Return a growth of a job by `workers` workers."""
    charge = {GPU: 2 * workers, "pods": workers}
    return IdleGrowth(key=key(name), attempt=attempt, grown=grown, workers=workers, charge=charge)


def grow(store: QueueStore, *growths: IdleGrowth) -> Sequence[Refusal]:
    snapshot = store.snapshot(0)
    return store.grow_idle(growths, snapshot.epoch, snapshot.revision)


def payment(name: str = "job", queue: str = "a", *, idle: int = 1, grown: int = 0) -> Entry:
    """Return a request to pay for idle workers."""
    wanted = replace(entry(name, queue, kind="grow"), unit=WORKER, idle=idle, grown=grown)
    assert not wanted.demand
    return wanted


def take(store: QueueStore, *picked: Pick) -> CommitResult:
    """Commit these picks; without picks, commit the first job of each queue."""
    snapshot = store.snapshot(1)
    heads = [view.heads[0] for view in snapshot.queues if view.heads]
    picks = picked or tuple(Pick(head, 1, snapshot.clock, {}) for head in heads)
    return commit(store, Batch(epoch=snapshot.epoch, revision=snapshot.revision, picks=picks))


def waiting(store: QueueStore) -> Sequence[Entry]:
    return [head.entry for view in store.snapshot(9).queues for head in view.heads]


@pytest.fixture
def opened(store: QueueStore) -> QueueStore:
    """Return a store with one admitted job, and room for one further worker in each limit."""
    store.rebuild(2, [held()], [])
    store.configure([QueueSpec(name="a", quota={GPU: 6}, cohort="team"), QueueSpec(name="b")], {GPU: 6})
    return store


def test_idle_growth_charges_counts_and_marks_and_changes_no_account(place: Place, opened: QueueStore) -> None:
    before = opened.snapshot(0)
    assert grow(opened, idle()) == [""]
    expected = held(size=3, grown=1, idle=1)
    assert opened.reservations() == {key("job"): expected}
    assert opened.inspect().reservations == {key("job"): expected}
    after = opened.snapshot(0)
    assert usage(after) == {"": expected.charge, "a": expected.charge}
    assert (after.clock, after.queues[0].account) == (before.clock, before.queues[0].account)
    assert [view.spec.name for view in opened.snapshot(0, before.change).queues] == ["a"]
    assert place.marked() == [(key("job"), "a")]


@pytest.mark.parametrize(
    ("growth", "refused"),
    [
        (idle(grown=1), "reservation"),
        (idle(attempt=2), "reservation"),
        (idle("other"), "reservation"),
        (idle(workers=2), "quota"),
    ],
)
def test_idle_growth_that_does_not_count_or_fit_changes_nothing(
    place: Place, opened: QueueStore, growth: IdleGrowth, refused: Refusal
) -> None:
    opened.configure([spec("a", gpu=6)], None)
    change = opened.snapshot(0).change
    assert grow(opened, growth) == [refused]
    assert opened.reservations() == {key("job"): held()}
    assert opened.snapshot(0).change == change
    assert place.marked() == []


def test_idle_growth_needs_room_in_cohort_and_pool(opened: QueueStore) -> None:
    opened.rebuild(3, [held(), held("lender", "b")], [])
    cohort = [QueueSpec(name=name, quota={GPU: 4}, cohort="team") for name in "ab"]
    for queues, pool, refused in ((cohort, None, "cohort"), ([spec("a"), spec("b")], {GPU: 9}, "pool")):
        opened.configure(queues, pool)
        assert grow(opened, idle()) == [refused]
    opened.configure([spec("a"), spec("b")], {GPU: 10})
    assert grow(opened, idle()) == [""]


def test_idle_growth_leaves_nothing_of_the_last_pick_to_refund(opened: QueueStore) -> None:
    opened.rebuild(3, [replace(held(), paid=9, gained=1)], [])
    opened.configure([spec("a")], None)
    assert grow(opened, idle()) == [""]
    assert opened.reservations() == {key("job"): held(size=3, grown=1, idle=1)}


def test_each_growth_of_a_call_stands_or_falls_alone(opened: QueueStore) -> None:
    opened.rebuild(3, [held(name) for name in ("one", "two", "three")], [])
    opened.configure([spec("a", gpu=18)], None)
    assert grow(opened, idle("one", workers=2), idle("two", workers=2), idle("three"), idle("one")) == [
        *("", "quota", "", "reservation")
    ]
    assert [each.idle for _, each in sorted(opened.reservations().items())] == [2, 1, 0]
    assert usage(opened.snapshot(0))["a"][GPU] == 18


def test_idle_growth_of_another_revision_or_epoch_is_refused(place: Place, opened: QueueStore) -> None:
    snapshot = opened.snapshot(0)
    opened.configure([spec("a")], None)
    assert opened.grow_idle([idle()], snapshot.epoch, snapshot.revision) == ["revision"]
    with pytest.raises(errors.StaleEpoch):
        opened.grow_idle([idle()], snapshot.epoch - 1, snapshot.revision + 1)
    other = place.open()
    other.rebuild(7, [held()], [])
    with pytest.raises(errors.StaleEpoch):
        opened.grow_idle([idle()], snapshot.epoch, snapshot.revision + 1)
    assert other.reservations() == {key("job"): held()}


def test_job_that_waits_for_a_paid_growth_gets_no_idle_one(opened: QueueStore) -> None:
    paid = replace(entry("job", kind="grow", gpu=2, pods=1), size=1)
    opened.put([paid])
    assert grow(opened, idle()) == ["entry"]
    assert waiting(opened) == [paid]
    opened.withdraw([key("job")])
    assert grow(opened, idle()) == [""]


def test_many_idle_growths_are_answered_in_their_order(store: QueueStore) -> None:
    names = [f"job-{number:03}" for number in range(601)]
    store.rebuild(2, [held(name) for name in names], [])
    store.configure([spec("a")], None)
    growths = [idle(name, grown=number % 2) for number, name in enumerate(names)]
    assert grow(store, *growths) == ["reservation" if number % 2 else "" for number in range(601)]
    assert usage(store.snapshot(0))["a"]["pods"] == 2 * 601 + 301


def test_lost_store_refuses_idle_growth(place: Place) -> None:
    with pytest.raises(errors.StoreLost):
        place.open().grow_idle([], 1, 0)


# Payments


def test_payment_turns_idle_workers_into_paid_ones_and_takes_no_room(place: Place, opened: QueueStore) -> None:
    opened.rebuild(3, [held(size=3, grown=4, idle=2)], [])
    opened.configure([spec("a", gpu=1)], {GPU: 1})
    opened.put([payment(idle=2, grown=4)])
    assert waiting(opened) == [payment(idle=2, grown=4)]
    committed = take(opened)
    expected = replace(held(size=3, grown=5), paid=1)
    assert (committed.refused, committed.reservations) == ("", (expected,))
    assert opened.reservations() == {key("job"): expected}
    assert usage(opened.snapshot(0)) == {"": expected.charge, "a": expected.charge}
    assert (waiting(opened), place.marked()) == ([], [(key("job"), "a")])


@pytest.mark.parametrize("stale", [payment(idle=2), payment(grown=1), payment(queue="b")])
def test_payment_for_more_idle_workers_than_there_are_does_not_count(opened: QueueStore, stale: Entry) -> None:
    opened.rebuild(3, [held(size=3, idle=1)], [])
    opened.configure([spec("a"), spec("b")], None)
    opened.put([stale])
    assert waiting(opened) == []


def test_commit_of_a_payment_for_workers_that_are_idle_no_more_is_refused(place: Place, opened: QueueStore) -> None:
    opened.rebuild(3, [held(size=3, idle=2)], [])
    opened.configure([spec("a")], None)
    opened.put([payment(idle=2)])
    place.replace_reservation(held(size=3, idle=1))
    assert take(opened).refused == "reservation"
    assert opened.reservations() == {key("job"): held(size=3, idle=1)}


@pytest.mark.parametrize("number", [-1, 2**60])
def test_payment_for_an_impossible_number_is_refused(opened: QueueStore, number: int) -> None:
    with pytest.raises(errors.Unstorable):
        opened.put([payment(idle=number)])


# Lowering and rebuilding


@pytest.mark.parametrize(("size", "rest"), [(4, 1), (3, 0), (2, 0), (5, 2)])
def test_of_the_workers_that_go_idle_ones_are_the_first(opened: QueueStore, size: int, rest: int) -> None:
    opened.rebuild(3, [held(size=5, grown=2, idle=2)], [])
    opened.configure([spec("a")], None)
    less = LoweredCharge(key=key("job"), attempt=1, grown=2, size=size, charge=held(size=size).charge)
    for _ in range(2):
        assert opened.lower([less]) == []
        assert opened.reservations() == {key("job"): held(size=size, grown=2, idle=rest)}


def test_lowering_deletes_a_payment_for_workers_that_have_gone(opened: QueueStore) -> None:
    jobs = ["kept", "gone"]
    opened.rebuild(
        3, [held(name, size=4, idle=2) for name in jobs], [payment(name, idle=1 + (name == "gone")) for name in jobs]
    )
    opened.configure([spec("a")], None)
    change = opened.snapshot(0).change
    less = [LoweredCharge(key=key(name), attempt=1, grown=0, size=3, charge=held(size=3).charge) for name in jobs]
    opened.lower(less)
    assert waiting(opened) == [payment("kept")]
    [view] = opened.snapshot(9, change).queues
    assert view.waiting == 1
    assert take(opened).refused == ""


def test_rebuild_brings_idle_workers_and_their_payments_back(opened: QueueStore) -> None:
    opened.rebuild(3, [held(size=4, grown=1, idle=3)], [payment(idle=3, grown=1)])
    opened.configure([spec("a")], None)
    assert opened.reservations() == {key("job"): held(size=4, grown=1, idle=3)}
    assert waiting(opened) == [payment(idle=3, grown=1)]
