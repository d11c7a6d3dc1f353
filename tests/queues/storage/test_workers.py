"""Stores count the workers of admitted jobs: ranges, growths, withdrawn growths and lowered charges."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from crds.keys import JobKey
from queues import errors
from queues.store import LoweredCharge, QueueStore
from queues.values import Batch, CommitResult, Entry, Pick, QueueSpec, Reservation
from tests.queues.conftest import Place
from tests.support.queues.builders import GPU, commit, entry, key, reservation, spec, usage

WORKER = {GPU: 2, "pods": 1}


def ranged(name: str = "job", queue: str = "a", *, size: int = 1, most: int = 3, step: int = 1) -> Entry:
    """Return a job that may begin with `size` workers."""
    least = entry(name, queue, gpu=2 * size, pods=size)
    return replace(least, size=size, unit=WORKER, most=most, step=step)


def growth(name: str = "job", queue: str = "a", *, size: int = 1, most: int = 0, grown: int = 0) -> Entry:
    """Return a request for further workers."""
    wanted = entry(name, queue, kind="grow", gpu=2 * size, pods=size)
    return replace(wanted, size=size, unit=WORKER, most=most, grown=grown)


def held(name: str = "job", queue: str = "a", *, size: int = 3, grown: int = 0) -> Reservation:
    return replace(reservation(name, queue, gpu=2 * size, pods=size), size=size, grown=grown)


def lowered(name: str = "job", *, attempt: int = 1, size: int = 1, grown: int = 0) -> LoweredCharge:
    charge = held(name, size=size).charge
    return LoweredCharge(key=key(name), attempt=attempt, grown=grown, size=size, charge=charge)


COST = 7


def take(store: QueueStore, units: int = 0) -> CommitResult:
    """Commit the first job of each queue with `units` further workers."""
    snapshot = store.snapshot(1)
    heads = [view.heads[0] for view in snapshot.queues if view.heads]
    picks = tuple(Pick(head, COST, snapshot.clock, {}, units=units) for head in heads)
    return commit(store, Batch(epoch=snapshot.epoch, revision=snapshot.revision, picks=picks))


def waiting(store: QueueStore) -> Sequence[Entry]:
    return [head.entry for view in store.snapshot(9).queues for head in view.heads]


@pytest.mark.parametrize(
    "put", [ranged(size=2, most=6, step=2), replace(ranged(), most=0, unit={}), replace(ranged(), most=0, step=3)]
)
def test_entry_with_a_range_is_read_back_unchanged(store: QueueStore, put: Entry) -> None:
    store.configure([spec("a")], None)
    store.put([put])
    assert waiting(store) == [put]
    place = store.place(put.key)
    assert place is not None
    assert place.entry == put
    assert store.inspect().entries == {put.key: put}


@pytest.mark.parametrize(
    "job",
    [ranged(most=2**52), ranged(step=0), ranged(most=-1), replace(ranged(most=0), size=2**60), growth(grown=2**53)],
)
def test_range_whose_charge_could_not_be_kept_is_refused(store: QueueStore, job: Entry) -> None:
    with pytest.raises(errors.Unstorable):
        store.put([job])


def test_pick_with_further_workers_charges_and_counts_them(place: Place) -> None:
    store = place.open(ports=(20000, 20005))
    store.rebuild(1, [], [])
    store.configure([spec("a", gpu=8)], {GPU: 8})
    store.put([ranged()])
    committed = take(store, units=2)
    expected = replace(held(size=3), pick=1, port=20000, paid=COST)
    assert committed.reservations == (expected,)
    assert store.reservations() == {key("job"): expected}
    assert store.inspect().reservations == {key("job"): expected}
    assert usage(store.snapshot(0)) == {"": expected.charge, "a": expected.charge}


@pytest.mark.parametrize(("quota", "pool", "refused"), [({"gpu": 5}, None, "quota"), ({}, {GPU: 5}, "pool")])
def test_further_workers_must_fit_quota_and_pool(
    store: QueueStore, quota: dict[str, int], pool: dict[str, int], refused: str
) -> None:
    store.configure([spec("a", **quota)], pool)
    store.put([ranged()])
    assert take(store, units=2).refused == refused
    assert waiting(store) == [ranged()]
    assert take(store, units=1).refused == ""


def test_growth_adds_to_the_reservation_and_takes_no_port(place: Place) -> None:
    store = place.open(ports=(20000, 20000))
    store.rebuild(1, [replace(held(size=2, grown=4), port=20000, pick=3)], [])
    store.configure([spec("a", gpu=12)], None)
    store.put([growth(size=1, most=3, grown=4)])
    committed = take(store, units=2)
    expected = replace(held(size=5, grown=5), port=20000, pick=3, paid=COST, gained=3)
    assert (committed.refused, committed.reservations) == ("", (expected,))
    assert store.reservations() == {key("job"): expected}
    assert usage(store.snapshot(0)) == {"": expected.charge, "a": expected.charge}
    assert waiting(store) == []
    assert place.marked() == [(key("job"), "a")]


@pytest.mark.parametrize("stale", [growth(grown=1), growth(grown=3), growth(queue="b", grown=2)])
def test_growth_of_another_number_or_queue_does_not_count(store: QueueStore, stale: Entry) -> None:
    store.rebuild(2, [held(grown=2)], [])
    store.configure([spec("a"), spec("b")], None)
    store.put([growth(grown=2)])
    store.put([stale])
    assert waiting(store) == [growth(grown=2)]
    store.put([growth(size=2, grown=2)])
    assert waiting(store) == [growth(size=2, grown=2)]


@pytest.mark.parametrize("grown", [1, 0])
def test_commit_of_a_growth_that_does_not_count_any_more_is_refused(place: Place, grown: int) -> None:
    store = place.open()
    store.rebuild(1, [held(grown=1)], [])
    store.configure([spec("a"), spec("b")], None)
    store.put([growth(grown=1)])
    place.replace_reservation(held(queue="b" if grown else "a", grown=grown))
    assert take(store).refused == "reservation"
    assert usage(store.snapshot(0))[""] == held().charge


def test_growths_survive_a_rebuild_that_was_prepared(place: Place) -> None:
    store = place.open()
    store.prepare(2, [growth(grown=2), ranged("other")])
    store.rebuild(2, [held(grown=2)], [growth(grown=2), ranged("other")])
    store.configure([spec("a")], None)
    assert {each.key: each for each in waiting(store)} == {key("job"): growth(grown=2), key("other"): ranged("other")}


def test_withdraw_deletes_growths_only(store: QueueStore) -> None:
    store.rebuild(2, [held()], [ranged("other"), growth()])
    store.configure([spec("a")], None)
    change = store.snapshot(0).change
    for _ in range(2):
        store.withdraw([key("job"), key("job"), key("other"), key("unknown")])
        assert waiting(store) == [ranged("other")]
    assert store.reservations() == {key("job"): held()}
    assert [view.spec.name for view in store.snapshot(9, change).queues] == ["a"]


def test_lowered_charge_frees_queue_cohort_and_pool_in_a_change_of_its_own(store: QueueStore) -> None:
    quota = {GPU: 6}
    queues = [QueueSpec(name=name, quota=quota, cohort="team") for name in "ab"]
    store.rebuild(2, [held(size=3), held("other", "b", size=3)], [growth(most=1)])
    store.configure(queues, {GPU: 12})
    store.put([entry("next", "b", gpu=4)])
    assert take(store).refused == "cohort"
    change = store.snapshot(0).change
    for _ in range(2):
        assert store.lower([lowered(size=1)]) == []
        assert store.reservations([key("job")]) == {key("job"): held(size=1)}
        assert usage(store.snapshot(0))["a"] == held(size=1).charge
    difference = store.snapshot(9, change)
    assert (difference.change, [view.spec.name for view in difference.queues]) == (change + 1, ["a"])
    assert growth(most=1) in waiting(store)
    store.withdraw([key("job")])
    assert take(store).refused == ""


def test_payment_is_known_until_a_part_is_given_back(store: QueueStore) -> None:
    paid = replace(held(size=3, grown=1), paid=2**50 + 1, gained=2)
    store.rebuild(2, [paid], [])
    store.configure([spec("a")], None)
    assert store.reservations() == {key("job"): paid}
    store.lower([lowered(size=3, grown=1)])
    assert store.reservations() == {key("job"): paid}
    store.lower([lowered(size=2, grown=1)])
    assert store.reservations() == {key("job"): held(size=2, grown=1)}


def test_lower_never_raises_an_amount(store: QueueStore) -> None:
    store.rebuild(2, [held(size=3)], [])
    store.configure([spec("a")], None)
    mixed = LoweredCharge(key=key("job"), attempt=1, grown=0, size=9, charge={"jobs": 9, GPU: 4, "cpu": 5})
    assert store.lower([mixed]) == []
    assert store.reservations([key("job")])[key("job")] == replace(held(size=3), charge={"jobs": 1, GPU: 4})
    assert usage(store.snapshot(0))["a"] == {"jobs": 1, GPU: 4}


@pytest.mark.parametrize("other", [lowered(attempt=2), lowered(grown=1), lowered(grown=3), lowered("unknown", grown=2)])
def test_lower_leaves_a_reservation_of_another_attempt_or_growth(store: QueueStore, other: LoweredCharge) -> None:
    store.rebuild(2, [held(grown=2)], [])
    store.configure([spec("a")], None)
    change = store.snapshot(0).change
    assert store.lower([other], 5) == []
    assert store.reservations() == {key("job"): held(grown=2)}
    assert store.snapshot(0).change == change


def test_one_call_may_lower_a_job_twice_and_many_jobs(store: QueueStore) -> None:
    names = [f"job-{number}" for number in range(601)]
    store.rebuild(2, [held(name) for name in names], [])
    store.configure([spec("a")], None)
    store.lower([*(lowered(name, size=2) for name in names), lowered(names[0], size=1), lowered(names[0], size=1)])
    assert usage(store.snapshot(0))["a"] == {"jobs": 601, GPU: 600 * 4 + 2, "pods": 1201}


def test_lost_store_refuses_lower_and_withdraw(place: Place) -> None:
    store = place.open()
    no_keys: list[JobKey] = []
    for refused in (lambda: store.lower([]), lambda: store.withdraw(no_keys)):
        with pytest.raises(errors.StoreLost):
            refused()


def hinted(store: QueueStore, *nodes: str) -> CommitResult:
    """Commit the first jobs of the queue, each with a text of its nodes."""
    snapshot = store.snapshot(len(nodes))
    picks = tuple(
        Pick(head, COST, snapshot.clock, {}, nodes=text)
        for head, text in zip(snapshot.queues[0].heads, nodes, strict=True)
    )
    return commit(store, Batch(epoch=snapshot.epoch, revision=snapshot.revision, picks=picks))


def test_a_reservation_keeps_the_nodes_of_its_pick(store: QueueStore) -> None:
    store.configure([spec("a")], None)
    store.put([entry(name, submitted=number) for number, name in enumerate(("one", "two", "three"))])
    committed = hinted(store, "0=n1*4,n2*4", "", "0=n3*1 1=n4*1")
    assert [each.nodes for each in committed.reservations] == ["0=n1*4,n2*4", "", "0=n3*1 1=n4*1"]
    assert {each.key: each for each in committed.reservations} == store.reservations()


LONG = ",".join(f"node-{number:03}.example.org*8" for number in range(80))


@pytest.mark.parametrize(
    ("before", "more", "after"),
    [
        ("0=n1*1 1=n1*1", "1=n2*1", "0=n1*1 1=n1*1 1=n2*1"),
        ("0=n1*1", "", "0=n1*1"),
        ("", "1=n2*1", ""),
        (f"0={LONG}", "1=n2*1", f"0={LONG} 1=n2*1"),
        (f"0={LONG}", f"1={LONG}", ""),
        ("in:rack=r1 0=n1*1", "1=n2*1", "in:rack=r1 0=n1*1 1=n2*1"),
        ("in:rack=r1", "1=n2*1", "in:rack=r1"),
        (f"in:rack=r1 0={LONG}", f"1={LONG}", "in:rack=r1"),
    ],
)
def test_a_growth_adds_its_nodes_to_those_that_are_known(store: QueueStore, before: str, more: str, after: str) -> None:
    store.rebuild(2, [replace(held(), nodes=before)], [])
    store.configure([spec("a")], None)
    store.put([growth()])
    (grown,) = hinted(store, more).reservations
    assert grown.nodes == after
    assert store.reservations() == {key("job"): grown}


def test_nodes_are_forgotten_once_a_part_is_given_back(store: QueueStore) -> None:
    store.rebuild(2, [replace(held(size=3), nodes="0=n1*3")], [])
    store.configure([spec("a")], None)
    store.lower([lowered(size=3)])
    assert store.reservations()[key("job")].nodes == "0=n1*3"
    store.lower([lowered(size=2)])
    assert store.reservations() == {key("job"): held(size=2)}
