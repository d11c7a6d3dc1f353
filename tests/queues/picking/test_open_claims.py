"""Open claims: no job of a queue takes the room that is given back to the queue's first job, and no queue pays for this
room.
"""

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crds.resources import amounts
from queues.pick_cycle import PickCycle
from queues.rules import PickRules
from queues.store import PendingCommit, QueueStore
from queues.values import Account, Batch, Clock, Entry, OvertakenJob, QueueSpec
from tests.doubles.memory_store import MemoryStore
from tests.queues.conftest import Place
from tests.support.queues.builders import GPU, START, entry, further, key, opened, reservation, resources, spec, specs

RULES = PickRules(cost=GPU)
HEAD = entry("head", "a", START - 9, gpu=6)


def picked(rounds: PickCycle, now: float = START) -> list[str]:
    """Run one round, and return the names of the jobs that were picked."""
    result = rounds.run(now, 99, 99)
    assert not result.refused
    return [each.key.name for each in result.reservations]


def records(store: QueueStore) -> dict[str, OvertakenJob | None]:
    return {view.spec.name: view.overtaken for view in store.snapshot(0).queues}


def accounts(store: QueueStore) -> tuple[Clock, dict[str, Account]]:
    snapshot = store.snapshot(0)
    return snapshot.clock, {view.spec.name: view.account for view in snapshot.queues}


CROWD = [
    entry("gpu", "a", START - 8, gpu=1),
    entry("cpu", "a", START - 7, cpu=1),
    further(entry("range", "a", START - 6, cpu=1), most=3, gpu=1),
    replace(entry("grows", kind="grow", submitted=START - 5, gpu=1), size=1),
    replace(entry("pays", kind="grow", submitted=START - 4), unit=resources(gpu=1), idle=1),
]
HOLDERS = [replace(reservation(name, gpu=1), size=1, idle=1) for name in ("grows", "pays")]


@pytest.mark.parametrize(
    ("claimed", "names"),
    [(False, ["gpu", "cpu", "range", "pays"]), (True, ["cpu", "range", "pays"])],
)
def test_jobs_that_leave_a_claimed_first_job_what_it_needs_pass_it(claimed: bool, names: list[str]) -> None:
    """Of 8 GPUs, 4 are used, and 2 of the used GPUs are given back. The first job needs 6."""
    store = opened([spec("a", gpu=8)], [HEAD, *CROWD], None, [reservation("gives", gpu=2), *HOLDERS])
    rounds = PickCycle(store, RULES)
    if claimed:
        rounds.claim("a", HEAD.key)
    assert sorted(picked(rounds)) == sorted(names)
    charge = store.reservations()[key("range")].charge
    assert (charge.get(GPU, 0) == 0) == claimed, "the job takes its least of what the first job needs"
    if claimed:
        store.remove([key("gives")])
        assert picked(rounds) == ["head"]
        assert sorted(picked(rounds)) == [], "8 of 8 GPUs are used"


@st.composite
def crowds(draw: st.DrawFn) -> list[Entry]:
    """Return jobs behind a first job that does not fit."""
    sizes = st.integers(0, 4)
    made = []
    for number in range(draw(st.integers(1, 9))):
        job = entry(f"job-{number}", "a", START + number, gpu=draw(sizes), cpu=draw(sizes), memory=draw(sizes))
        unit = resources(gpu=draw(st.integers(0, 2)), cpu=draw(st.integers(0, 2)))
        made.append(replace(job, size=1, unit=unit, most=draw(st.sampled_from([0, 2]))))
    return made


@given(data=st.data(), crowd=crowds(), cohort=st.sampled_from(["", "team"]))
def test_a_claimed_first_job_is_never_passed_by_a_job_that_takes_what_it_needs(
    data: st.DataObject, crowd: list[Entry], cohort: str
) -> None:
    quota = {GPU: 12, "cpu": data.draw(st.integers(4, 12)), "memory": 9}
    used = resources(gpu=data.draw(st.integers(0, 12)), cpu=data.draw(st.integers(0, 4)))
    head = entry("head", "a", START - 9, gpu=data.draw(st.integers(1, 12)), cpu=data.draw(st.integers(0, 4)))
    queue = QueueSpec(name="a", quota=quota, cohort=cohort, borrowing=dict.fromkeys(quota, 0))
    other = QueueSpec(name="b", quota=quota, cohort=cohort)
    held = replace(reservation("held"), charge={"jobs": 1, **used})
    store = opened(
        [queue, other], [head, *crowd, entry("borrows", "b", gpu=data.draw(st.integers(0, 14)))], None, [held]
    )
    rounds = PickCycle(store, RULES)
    rounds.claim("a", head.key)
    for _ in range(2):
        taken = dict(used)
        for each in rounds.run(START, 99, 99).reservations:
            if each.key == head.key:
                return
            if each.queue == "a":
                amounts.increase(taken, each.charge)
                names = [name for name in quota if each.charge.get(name, 0) > 0 < head.demand.get(name, 0)]
                assert all(taken[name] + head.demand[name] <= quota[name] for name in names)
        used = taken


def test_nobody_pays_for_a_claim_whose_job_leaves() -> None:
    waiting = [HEAD, entry("small", "b", gpu=1)]
    stores = [opened([spec("a", gpu=8), spec("b")], waiting, None, [reservation("runs", gpu=4)]) for _ in range(2)]
    rounds = [PickCycle(store, RULES) for store in stores]
    rounds[0].claim("a", HEAD.key)
    for store, cycle in zip(stores, rounds, strict=True):
        assert picked(cycle) == ["small"]
        store.remove([HEAD.key])
        assert picked(cycle) == []
    assert accounts(stores[0]) == accounts(stores[1])
    assert records(stores[0]) == {"a": None, "b": None}
    assert rounds[0].claims == {}


def test_a_claim_ends_with_the_pick_of_its_job_and_does_not_come_back_with_it() -> None:
    store = opened([spec("a", gpu=8)], [HEAD], None, [reservation("runs", gpu=4)])
    rounds = PickCycle(store, RULES)
    rounds.claim("a", HEAD.key)
    assert picked(rounds) == []
    assert rounds.claims == {"a": HEAD.key}
    store.remove([key("runs")])
    assert picked(rounds) == ["head"]
    assert (rounds.claims, records(store)) == ({}, {"a": None})
    store.remove([HEAD.key])
    store.put([replace(HEAD, attempt=2), entry("small", gpu=4)])
    store.put([entry("runs-again", "a", START - 99, gpu=4)])
    assert picked(rounds) == ["runs-again", "small"]


def displace(store: MemoryStore) -> None:
    store.put([entry("urgent", "a", START - 99, gpu=7)])


def leave(store: MemoryStore) -> None:
    store.remove([HEAD.key])


def move(store: MemoryStore) -> None:
    store.put([replace(HEAD, queue="b")])


@pytest.mark.parametrize("end", [displace, leave, move])
def test_a_claim_ends_when_its_job_is_not_the_first_one_any_more(end: Callable[[MemoryStore], None]) -> None:
    store = opened([spec("a", gpu=8), spec("b", gpu=0)], [HEAD], None, [reservation("runs", gpu=4)])
    rounds = PickCycle(store, RULES)
    rounds.claim("a", HEAD.key)
    picked(rounds)
    end(store)
    assert picked(rounds) == []
    assert (rounds.claims, records(store)["a"]) == ({}, None)
    if end is displace:
        store.remove([key("urgent")])
    store.put([HEAD, entry("small", gpu=4)])
    assert picked(rounds) == ["small"], "the job has no claim when it is first again"


def test_a_closed_claim_lets_smaller_jobs_pass_again() -> None:
    store = opened([spec("a", gpu=8)], [HEAD, entry("small", gpu=4)], None, [reservation("runs", gpu=4)])
    rounds = PickCycle(store, RULES)
    rounds.claim("a", HEAD.key)
    assert picked(rounds) == []
    rounds.replace_claims({})
    assert (picked(rounds), rounds.claims) == (["small"], {})


def test_claims_that_are_replaced_are_closed() -> None:
    queues = [spec(name, gpu=8) for name in "abc"]
    waiting = [replace(HEAD, key=key(name), queue=name) for name in "abc"]
    store = opened(queues, waiting, None, [reservation(f"runs-{name}", name, gpu=4) for name in "abc"])
    rounds = PickCycle(store, RULES)
    for claims in ({"a": key("a"), "b": key("b")}, {"b": key("b"), "c": key("c")}, {}):
        rounds.replace_claims(claims)
        picked(rounds)
        assert rounds.claims == claims


def test_a_claim_for_another_job_than_the_first_is_ignored() -> None:
    store = opened([spec("a", gpu=8)], [HEAD, entry("small", gpu=5)], None, [reservation("runs", gpu=4)])
    rounds = PickCycle(store, RULES)
    rounds.claim("a", key("small"))
    rounds.hasten("a", key("small"))
    rounds.claim("unknown", HEAD.key)
    assert (picked(rounds), rounds.claims, records(store)) == ([], {}, {"a": None})


def test_a_queue_has_one_claim() -> None:
    store = opened([spec("a", gpu=8)], [HEAD], None, [reservation("runs", gpu=4)])
    rounds = PickCycle(store, RULES)
    rounds.claim("a", HEAD.key)
    picked(rounds)
    displace(store)
    rounds.claim("a", key("urgent"))
    picked(rounds)
    assert rounds.claims == {"a": key("urgent")}


def test_a_claim_outlives_its_leader_and_is_lost_with_the_store_without_harm(place: Place) -> None:
    store = place.open()
    waiting = [HEAD, entry("small", gpu=4)]
    store.rebuild(1, [reservation("runs", gpu=4)], waiting)
    store.configure([spec("a", gpu=8)], None)
    rounds = PickCycle(store, RULES)
    rounds.claim("a", HEAD.key)
    assert picked(rounds) == []
    assert records(store) == {"a": OvertakenJob(key=HEAD.key, times=0, since=START, claimed=True)}
    assert picked(PickCycle(store, RULES)) == []
    store.rebuild(2, store.reservations().values(), waiting)
    assert picked(PickCycle(store, RULES)) == [], "records outlive a rebuild"
    place.lose()
    store.rebuild(3, [reservation("runs", gpu=4)], waiting)
    store.configure([spec("a", gpu=8)], None)
    assert picked(PickCycle(store, RULES)) == ["small"]


class Refusing(MemoryStore):
    """A store whose settings change while the first commit is made."""

    def pending_commit(self, batch: Batch) -> PendingCommit:
        if not self.reservations().keys() & {key("other")}:
            self.configure([spec("a", gpu=9)], None)
        return super().pending_commit(batch)


def test_a_claim_whose_commit_is_refused_is_opened_in_the_next_round() -> None:
    store = Refusing(lambda *_: None)
    store.rebuild(1, [reservation("runs", gpu=4)], [HEAD, entry("small", gpu=4)])
    store.configure([spec("a", gpu=8)], None)
    rounds = PickCycle(store, RULES)
    rounds.claim("a", HEAD.key)
    assert rounds.run(START, 9, 9).refused == "revision"
    assert (picked(rounds), rounds.claims) == ([], {"a": HEAD.key})


# Beside the pool's reservation, and in a cohort


def test_a_hastened_job_gets_the_reservation_of_the_pool_in_the_next_round() -> None:
    waiting = [replace(HEAD, queue="x"), *(entry(f"small-{number}", "a", gpu=1) for number in range(9))]
    for hastened in (False, True):
        store = opened(specs(a=1, x=1), waiting, {GPU: 8}, [reservation("runs", "a", gpu=4)])
        rounds = PickCycle(store, PickRules(cost=GPU))
        if hastened:
            rounds.hasten("x", HEAD.key)
        assert len(picked(rounds)) == (0 if hastened else 4)
        record = records(store)["x"]
        assert record is not None
        assert record.kept == (HEAD.demand if hastened else None)


def test_a_claim_alone_does_not_end_the_patience_of_its_job() -> None:
    waiting = [replace(HEAD, queue="x"), *(entry(f"small-{number}", "a", gpu=1) for number in range(9))]
    store = opened(
        [spec("a"), spec("x", gpu=8)],
        waiting,
        {GPU: 8},
        [reservation("own", "x", gpu=4), reservation("runs", "a", gpu=4)],
    )
    rounds = PickCycle(store, RULES)
    rounds.claim("x", HEAD.key)
    assert picked(rounds) == []
    store.remove([key("own")])
    assert len(picked(rounds, START + 60)) == 4, "the patience of the first job begins now"


def lending(**used: int) -> MemoryStore:
    """Return two queues of 8 GPUs each, of which the second wants to borrow."""
    queues = [QueueSpec(name=name, quota={GPU: 8}, cohort="team") for name in "ab"]
    held = [reservation(name, name, gpu=count) for name, count in used.items()]
    waiting = [replace(HEAD, demand={"jobs": 1, GPU: 8}), entry("loan", "b", gpu=2)]
    return opened([replace(queues[0], borrowing={GPU: 0}), queues[1]], waiting, None, held)


@pytest.mark.parametrize(("claimed", "names"), [(False, ["loan"]), (True, [])])
def test_the_free_part_of_a_claimed_jobs_quota_is_not_lent(claimed: bool, names: list[str]) -> None:
    """Queue a uses 2 of its 8 GPUs, and these 2 are given back to it. Queue b would borrow 2 of the 6 free GPUs."""
    store = lending(a=2, b=8)
    rounds = PickCycle(store, RULES)
    if claimed:
        rounds.claim("a", HEAD.key)
    assert picked(rounds) == names
    if claimed:
        assert picked(PickCycle(store, RULES)) == [], "a new leader keeps the claim"
        store.remove([key("a")])
        assert picked(rounds) == ["head"]


def test_a_claim_counts_in_a_cohort_that_has_not_changed() -> None:
    store = lending(a=2, b=8)
    cohort = [view.spec for view in store.snapshot(0).queues]
    store.put([entry("elsewhere", "c", START - 99, cpu=1)])
    store.configure([*cohort, spec("c")], {"cpu": 1})
    store.remove([key("loan")])
    rounds = PickCycle(store, RULES)
    assert picked(rounds) == ["elsewhere"]
    store.put([entry("loan", "b", gpu=3, cpu=1)])
    assert picked(rounds) == [], "the pool is full"
    store.remove([key("elsewhere")])
    rounds.claim("a", HEAD.key)
    assert picked(rounds) == []


def test_the_members_of_a_cohort_may_borrow_beside_a_claim() -> None:
    store = lending(a=2, b=7)
    store.put([entry("loan", "b", gpu=1)])
    rounds = PickCycle(store, RULES)
    rounds.claim("a", HEAD.key)
    assert picked(rounds) == ["loan"]
