"""Reserved room: the pool reserves room for one job at a time, and the queue of this job pays for the time for which
the room is idle.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import count

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crds.keys import JobKey
from queues.pick_cycle import PickCycle
from queues.picking.fair_share import UNIT, FairShare, lag
from queues.picking.grouped_index import Bid
from queues.picking.kept_room import MOST_JOBS
from queues.picking.picker import Picker
from queues.rules import Patience, PickRules
from queues.store import QueueStore
from queues.values import Account, Batch, Clock, OvertakenJob, QueueSpec, Settlement
from tests.doubles.memory_store import MemoryStore
from tests.support.queues.builders import (
    GPU,
    START,
    choose,
    commit,
    entry,
    key,
    opened,
    reservation,
    resources,
    spec,
    specs,
)

OTHERS = "abcde"
POOL = 64
SECONDS = 100
"""The number of seconds for which a job of the other queues runs."""


@dataclass
class Cluster:
    """A simulated pool of GPUs. Jobs of the other queues use one GPU each and run about equally long."""

    queues: list[QueueSpec]
    rules: PickRules
    others: str
    now: float = START
    idle: int = 0
    used: Counter[str] = field(default_factory=Counter)
    ends: dict[JobKey, float] = field(default_factory=dict)
    _made: int = 0

    def __post_init__(self) -> None:
        self.store = MemoryStore(lambda *_: None)
        self.store.rebuild(1, [], [])
        self.store.configure(self.queues, {GPU: POOL})
        self.rounds = PickCycle(self.store, self.rules, holds=lambda: [(SECONDS, {GPU: 1})])

    @property
    def free(self) -> int:
        return POOL - self.store.snapshot(0).pool_usage.get(GPU, 0)

    def second(self) -> None:
        """Simulate one second: end jobs, submit new jobs, start all jobs that fit, and add up usage and idle GPUs."""
        self.now += 1
        ended = [each for each, end in self.ends.items() if end <= self.now]
        self.store.remove(ended)
        for each in ended:
            del self.ends[each]
        self._fill()
        while self.rounds.run(self.now, 512, 512).picked:
            self._fill()
        for each, held in self.store.reservations().items():
            # The ends are spread in time, as if the jobs had begun at many moments.
            length = SECONDS if held.charge[GPU] > 1 else SECONDS // 2 + self._number(each) * 37 % SECONDS
            self.ends.setdefault(each, self.now + length)
            self.used[held.queue] += held.charge[GPU]
        self.idle += self.free

    def _fill(self) -> None:
        """Submit jobs to the other queues, so that they always have waiting jobs."""
        for view in self.store.snapshot(0).queues:
            if view.spec.name in self.others:
                for _ in range(view.waiting, POOL // 2):
                    self._made += 1
                    name = f"{view.spec.name}-{self._made:06}"
                    self.store.put([entry(name, view.spec.name, self.now + self._made / 1e6, gpu=1)])

    def _number(self, job: JobKey) -> int:
        return int(job.name.rpartition("-")[2])


Attack = Callable[[Cluster], Iterator[None]]
"""The actions of an attacker, one step in each second."""


def withdraw(cluster: Cluster) -> Iterator[None]:
    """Submit a job as large as the pool, withdraw the job when it is about to start, and repeat."""
    for number in count(1):
        job = entry(f"large-{number}", "x", cluster.now, gpu=POOL)
        cluster.store.put([job])
        while cluster.free < POOL - 4 and job.key not in cluster.store.reservations():
            yield
        cluster.store.remove([job.key])
        yield


def alternate(cluster: Cluster) -> Iterator[None]:
    """Act as `withdraw` does, from two queues in turn."""
    for number in count(1):
        job = entry(f"large-{number}", "xy"[number % 2], cluster.now, gpu=POOL)
        cluster.store.put([job])
        while cluster.free < POOL - 4 and job.key not in cluster.store.reservations():
            yield
        cluster.store.remove([job.key])
        yield


def shrink(cluster: Cluster) -> Iterator[None]:
    """Change the size of one job a little whenever it is about to start."""
    size = POOL
    while True:
        size = POOL - 1 if size == POOL else POOL
        cluster.store.put([entry("large-1", "x", START, gpu=size)])
        while cluster.free < POOL - 4:
            yield
        yield


def displace(cluster: Cluster) -> Iterator[None]:
    """Submit two jobs as large as the pool, and give each of them the higher priority in turn."""
    for turn in count(1):
        for number in (1, 2):
            priority = turn if turn % 2 == number % 2 else 0
            cluster.store.put([entry(f"large-{number}", "x", START, priority, gpu=POOL)])
        while cluster.free < POOL - 4:
            yield
        yield


def close_in(cluster: Cluster) -> Iterator[None]:
    """Shrink a large job just before it starts, so that its small version uses the room reserved for the large job."""
    for number in count(1):
        job = entry(f"large-{number}", "x", cluster.now, gpu=POOL)
        cluster.store.put([job])
        while cluster.free < POOL - 4:
            yield
        cluster.store.put([replace(job, demand=job.demand | {GPU: 1})])
        yield


def outgrow(cluster: Cluster) -> Iterator[None]:
    """Whenever a large job is about to start, use up a part of its quota with a small job of the same queue."""
    yield from _hinder(cluster, "x")


def borrow(cluster: Cluster) -> Iterator[None]:
    """Whenever a large job is about to start, use up a part of the quota that it would borrow with a small job of the
    lender.
    """
    yield from _hinder(cluster, "y")


def block(cluster: Cluster) -> Iterator[None]:
    """Run a small job that never ends, and submit a job that needs the room of the small job."""
    endless = entry("endless-1", "x", START, gpu=1)
    cluster.store.put([endless])
    cluster.ends[endless.key] = float("inf")
    yield
    cluster.store.put([entry("large-1", "x", START, gpu=POOL)])
    while True:
        yield


def _hinder(cluster: Cluster, queue: str) -> Iterator[None]:
    large = entry("large-0", "x", START, gpu=QUOTA)
    for number in count(1):
        if large.key in cluster.store.reservations():
            large = entry(f"large-{number}", "x", cluster.now, gpu=QUOTA)
        cluster.store.put([large])
        while cluster.free < QUOTA - 10:
            yield
        small = entry(f"hinder-{number}", queue, cluster.now, gpu=0)
        cluster.store.put([small])
        yield
        cluster.store.remove([small.key])
        yield


QUOTA = POOL - 4
LIMITED: dict[Attack, list[QueueSpec]] = {
    outgrow: [spec("x", jobs=1)],
    borrow: [replace(spec("x", jobs=0), cohort="team"), replace(spec("y", jobs=1), cohort="team")],
}


def play(attack: Attack | None, attackers: str, seconds: int = 1000) -> Cluster:
    """Return a cluster after `seconds` of an attack; all queues have weight 1."""
    queues = {name: spec(name) for name in (*attackers, *OTHERS)}
    queues |= {each.name: each for each in (LIMITED.get(attack, []) if attack else [])}
    cluster = Cluster(list(queues.values()), PickRules(cost=GPU), OTHERS)
    moves = attack(cluster) if attack else None
    for _ in range(seconds):
        if moves is not None:
            next(moves)
        cluster.second()
    return cluster


@pytest.mark.proof
@pytest.mark.parametrize(
    ("attack", "attackers"),
    [
        (withdraw, "x"),
        (alternate, "xy"),
        (shrink, "x"),
        (displace, "x"),
        (close_in, "x"),
        (borrow, "xy"),
        (block, "x"),
    ],
)
def test_room_reserved_in_vain_counts_as_the_attackers_share(attack: Attack, attackers: str) -> None:
    cluster = play(attack, attackers)
    total = POOL * (cluster.now - START)
    share = len(attackers) / (len(attackers) + len(OTHERS))
    assert (cluster.idle + sum(cluster.used[name] for name in attackers)) / total <= share + 0.02
    used = [cluster.used[name] for name in OTHERS]
    assert max(used) - min(used) < 0.02 * total


def test_job_with_reserved_room_starts_despite_small_jobs_in_its_queue() -> None:
    cluster = play(outgrow, "x")
    total = POOL * (cluster.now - START)
    assert cluster.used["x"] / total > 0.08
    assert cluster.idle / total <= 1 / (1 + len(OTHERS))


def blocked_by_its_own_queue() -> MemoryStore:
    """Return a store with a pool of 8 GPUs: queue x uses 4 GPUs and requests 8, and jobs of queue a use the other
    GPUs.
    """
    store = MemoryStore(lambda *_: None)
    small = [entry(f"small-{number:02}", "a", START + number, gpu=1) for number in range(40)]
    store.rebuild(1, [reservation("own", "x", gpu=4)], [LARGE, *small])
    store.configure([*specs(a=1, x=1, y=1)], {GPU: 8})
    assert pick(store, RULES) == ["small-00", "small-01", "small-02", "small-03"]
    return store


def test_no_room_is_reserved_while_the_own_queue_uses_the_room() -> None:
    store = blocked_by_its_own_queue()
    for number in range(9):
        store.remove([key(f"small-{number:02}")])
        assert pick(store, RULES) == [f"small-{number + 4:02}"]
    store.remove([key("own")])
    assert pick(store, RULES) == ["small-13"], "the patience of the large job begins"
    store.remove([key(f"small-{number:02}") for number in range(14)])
    assert pick(store, RULES, limit=1) == ["large"]


def test_job_blocked_by_its_own_queue_does_not_block_other_queues() -> None:
    store = blocked_by_its_own_queue()
    store.put([entry("middle", "y", START, gpu=4)])
    for number in range(2):
        store.remove([key(f"small-{number:02}")])
        assert pick(store, PATIENT) == [f"small-{number + 4:02}"]
    store.remove([key(f"small-{number:02}") for number in range(2, 6)])
    assert pick(store, PATIENT) == ["middle"]


def test_a_passing_job_leaves_the_first_one_its_room_while_another_queue_has_the_reservation() -> None:
    store = MemoryStore(lambda *_: None)
    waiting = [LARGE, entry("tiny", "x", gpu=1), entry("urgent", "y", cpu=2), entry("small", "a", gpu=1)]
    store.rebuild(1, [reservation("runs", "a", gpu=4, cpu=1)], waiting)
    store.configure(specs(a=1, x=1, y=1), {GPU: 8, "cpu": 2})
    store._content.overtaken |= {
        "x": OvertakenJob(key=LARGE.key, times=2, since=START - 1, kept=LARGE.demand),
        "y": OvertakenJob(key=key("urgent"), times=2, since=START - 9, kept=waiting[2].demand),
    }
    assert pick(store, RULES) == ["small"]


def test_a_picker_sees_from_its_own_picks_that_a_queue_blocks_itself() -> None:
    store = MemoryStore(lambda *_: None)
    small = [entry(f"small-{number:02}", "a", START + number, gpu=1) for number in range(40)]
    store.rebuild(1, [], [entry("own", "x", START - 99, gpu=1), *small])
    store.configure(specs(a=1, x=1), {GPU: 8})
    rounds = PickCycle(store, RULES)
    assert rounds.run(START, 9, 9).picked == 8
    store.put([LARGE])
    for number in range(9):
        store.remove([key(f"small-{number:02}")])
        assert rounds.run(START, 9, 9).picked == 1


# Charges for reserved room

RULES = PickRules(cost=GPU, longest_patience=0.0)
"""The pool reserves room for a job as soon as another job has overtaken it."""
HOLD = 60.0
"""The number of seconds for which jobs hold their room."""
PATIENT = PickRules(cost=GPU)
STRICT = QueueSpec(name="x", strict=True)
LARGE = entry("large", "x", START - 9, gpu=8)
NEXT = entry("next", "x", START - 8, gpu=8)


def waiting_for_room(
    pool: int = 8,
    *,
    patient: bool = False,
    strict: bool = True,
    **quota: int,
) -> tuple[MemoryStore, PickRules]:
    """Return a pool of 8 GPUs, reserved whole for a job of queue x, and its rules.

    With `patient`, the job has not been overtaken yet, and no room is reserved for it.
    """
    rules = RULES
    store = MemoryStore(lambda *_: None)
    small = [entry(f"small-{number}", "a", START + number, gpu=1) for number in range(40)]
    store.rebuild(1, [reservation("runs", "a", gpu=4)], [LARGE, NEXT, *small])
    store.configure([replace(STRICT, strict=strict, quota=resources(**quota)), spec("a")], {GPU: pool})
    if patient:
        assert pick(store, rules, limit=1) == ["small-0"]
    else:
        assert pick(store, rules) == ["small-0", "small-1"]
    return store, rules


def pick(store: QueueStore, rules: PickRules, now: float = START, limit: int = 99) -> list[str]:
    """Commit the picks of one snapshot, even if there are no picks, and return the names of the admitted jobs."""
    patience = Patience(rules.least_patience, hold=HOLD)
    committed = commit(store, choose(store.snapshot(99), now, limit, rules, patience))
    assert not committed.refused
    return [each.key.name for each in committed.reservations]


def accounts(store: QueueStore) -> tuple[Clock, dict[str, Account]]:
    snapshot = store.snapshot(0)
    return snapshot.clock, {view.spec.name: view.account for view in snapshot.queues}


def close(store: MemoryStore) -> None:
    store.configure([replace(STRICT, open=False), spec("a")], {GPU: 8})


def smaller_pool(store: MemoryStore) -> None:
    store.configure([STRICT, spec("a")], {GPU: 7})


WITHDRAWALS: dict[str, Callable[[MemoryStore], object]] = {
    "job is deleted, suspended or held": lambda store: store.remove([LARGE.key]),
    "job requests less": lambda store: store.put([replace(LARGE, demand=LARGE.demand | {GPU: 7})]),
    "job requests another resource": lambda store: store.put([replace(LARGE, demand=LARGE.demand | {"cpu": 1})]),
    "job requests more than the pool has": lambda store: store.put([replace(LARGE, demand=LARGE.demand | {GPU: 9})]),
    "job moves to another queue": lambda store: store.put([replace(LARGE, queue="a")]),
    "priority of the job is lowered": lambda store: store.put([replace(LARGE, priority=-9)]),
    "priority of another job is raised": lambda store: store.put([replace(NEXT, priority=9)]),
    "job of a higher priority arrives": lambda store: store.put([entry("urgent", "x", START, 9, gpu=8)]),
}


def paid(store: QueueStore, queue: str = "x") -> float:
    """Return what a queue has paid, in GPUs."""
    return accounts(store)[1][queue].base / UNIT


def record(store: QueueStore, queue: str = "x") -> OvertakenJob | None:
    return next(view.overtaken for view in store.snapshot(0).queues if view.spec.name == queue)


def test_idle_room_costs_what_jobs_in_it_would_have_cost() -> None:
    store, rules = waiting_for_room()
    pick(store, rules, START + 0.9)
    assert paid(store) == 0
    pick(store, rules, START + 15)
    assert paid(store) == 2 * 15 / HOLD
    store.remove([key("runs")])
    for seconds in (16, 18, 30):
        pick(store, rules, START + seconds)
    assert paid(store) == pytest.approx(2 * 15 / HOLD + 6 * 15 / HOLD, abs=3 / UNIT)
    store.remove([key("small-0"), key("small-1")])
    assert pick(store, rules, START + 30, limit=1) == ["large"]
    assert paid(store) == pytest.approx(2 + 8, abs=3 / UNIT), "the pick costs its full price"


@pytest.mark.parametrize("withdrawal", WITHDRAWALS.values(), ids=WITHDRAWALS)
def test_a_withdrawn_job_has_cost_the_time_for_which_room_was_idle(
    withdrawal: Callable[[MemoryStore], object],
) -> None:
    store, rules = waiting_for_room()
    pick(store, rules, START + 15)
    withdrawal(store)
    pick(store, rules, START + 16, limit=0)
    left = record(store)
    assert paid(store) == 2 * 15 / HOLD
    assert left is None or left.kept is None
    pick(store, rules, START + 30, limit=0)
    assert paid(store) == 2 * 15 / HOLD


def test_a_job_hidden_behind_jobs_that_can_never_run_keeps_its_room_while_it_is_known() -> None:
    store, rules = waiting_for_room()
    store.put([entry(f"hopeless-{number}", "x", START, 9, gpu=9) for number in range(20)])
    assert not commit(store, choose(store.snapshot(30), START, 0, rules)).refused
    assert record(store) is not None
    assert not commit(store, choose(store.snapshot(20), START, 0, rules)).refused
    assert record(store) is None


def test_a_queue_that_is_gone_while_it_keeps_room_stays_ahead() -> None:
    store, rules = waiting_for_room()
    pick(store, rules, START + 15)
    store.remove([LARGE.key, NEXT.key])
    pick(store, rules, START + 16, limit=0)
    ahead = accounts(store)
    store.put([LARGE, NEXT])
    pick(store, rules, START + 16, limit=0)
    assert accounts(store) == ahead


def test_a_job_that_comes_back_begins_its_patience_again() -> None:
    store, rules = waiting_for_room()
    store.remove([LARGE.key])
    pick(store, rules, START + 99, limit=0)
    store.put([replace(LARGE, attempt=2)])
    store.remove([key("small-0"), key("small-1")])
    assert pick(store, PATIENT, START + 99) == ["small-2", "small-3", "small-4", "small-5"]


@pytest.mark.parametrize(
    "change",
    [
        close,
        smaller_pool,
        lambda store: (close(store), store.remove([LARGE.key])),
        lambda store: store.configure([spec("a")], {GPU: 8}),
    ],
)
def test_room_that_an_admin_takes_away_is_not_paid_for(change: Callable[[MemoryStore], object]) -> None:
    store, rules = waiting_for_room()
    change(store)
    pick(store, rules, START + 15, limit=0)
    assert accounts(store)[1].get("x", Account()).base == 0


def test_room_in_vain_goes_to_others_until_its_queue_is_even() -> None:
    store, rules = waiting_for_room()
    now = START
    while (kept := record(store)) is not None and kept.kept is not None:
        now += 15
        assert pick(store, rules, now, limit=0) == []
        assert now < START + 9_999
    assert kept is not None
    assert (kept.vain, kept.times, kept.impatient) == (1, 0, False)
    clock, found = accounts(store)
    cost = MOST_JOBS * 8
    assert cost < -lag(found["x"], clock) < cost + 1
    assert pick(store, rules, now) == ["small-2", "small-3"]
    for number in range(4, 30):
        store.remove([key(f"small-{number - 2}")])
        store.put([entry(f"small-{number + 40}", "a", START + number + 40, gpu=1)])
        now += 30
        assert pick(store, rules, now) == [f"small-{number}"], "no room is kept for the large job"
    store.remove([key("runs"), *(key(f"small-{number}") for number in (28, 29))])
    assert "large" not in pick(store, rules, now, limit=4), "the large job does not go before others"


def test_a_job_for_which_patience_is_ended_gets_no_room_while_its_queue_is_ahead() -> None:
    store, rules = waiting_for_room()
    store._content.overtaken["x"] = OvertakenJob(key=LARGE.key, times=0, since=START, impatient=True, vain=1)
    picker = Picker(store.snapshot(99), rules)
    picker.patience = Patience(0.0, hold=HOLD)
    picker.settle("x", 30)
    picker.picks(START, 0)
    assert picker.reservation_holder == ""
    picker.settle("x", -30)
    picker.picks(START, 0)
    assert picker.reservation_holder == "x"


@pytest.mark.parametrize(("seconds", "charged"), [(-60, 0), (0, 0), (1, 1), (15, 15), (3600, 15)])
def test_time_without_a_leader_is_not_paid_nor_paid_twice(seconds: float, charged: float) -> None:
    store, rules = waiting_for_room()
    for _ in range(3):
        pick(store, rules, START + seconds, limit=0)  # each pick is made by a new picker
    assert paid(store) == pytest.approx(2 * charged / HOLD, abs=2 / UNIT)


def test_a_rebuild_goes_on_with_what_is_paid_and_an_empty_store_begins_anew() -> None:
    store, rules = waiting_for_room()
    pick(store, rules, START + 15, limit=0)
    waiting = [each.entry for view in store.snapshot(99).queues for each in view.heads]
    store.rebuild(2, store.all_reservations().values(), waiting)
    assert paid(store) == 2 * 15 / HOLD
    pick(store, rules, START + 16, limit=0)
    assert paid(store) == pytest.approx(2 * 16 / HOLD, abs=2 / UNIT)
    new = opened([STRICT, spec("a")], waiting, {GPU: 8}, list(store.all_reservations().values()))
    pick(new, rules, START + 30, limit=0)
    assert (paid(new), record(new)) == (0, None)


def test_what_others_are_behind_because_of_kept_room_is_not_cut() -> None:
    fair_share = FairShare(Clock(scheme="x"), {}, "x")
    fair_share.bid("a", Bid(1, 1, 0))
    fair_share.bid("x", Bid(1, 8, 0))
    fair_share.settle()
    fair_share.charge_room("x", 64 * UNIT, 1)
    for _ in range(9):
        fair_share.pay("a", 1)
    assert fair_share.lag("x") == -(64 - 9) / 2


@pytest.mark.proof
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_no_queue_gains_more_than_one_job_and_one_keeping(data: st.DataObject) -> None:
    """Two queues play together. One queue has a small job that never ends; the other queue has large jobs, which it may
    withdraw.
    """
    weights = {name: data.draw(st.integers(1, 5), name) for name in ("small", "large", "a", "b")}
    store = opened(specs(**weights), [entry("endless", "small", gpu=1)], {GPU: 8})
    hold, lives = data.draw(st.sampled_from([1.0, 10.0])), data.draw(st.sampled_from([5, 40, 999]))
    cycle = PickCycle(store, RULES, holds=lambda: [(hold, {GPU: 1})])
    numbers, now, keepings = count(), START, 1
    for step in range(80):
        now += data.draw(st.sampled_from([1, 15, 15, 15]))
        waiting = {view.spec.name: [each.entry.key for each in view.heads] for view in store.snapshot(9).queues}
        for queue in ("a", "b"):
            missing = range(len(waiting[queue]), 8)
            store.put([entry(f"{queue}-{next(numbers):04}", queue, now, gpu=1) for _ in missing])
        held = sorted(each.key for each in store.reservations().values() if each.queue != "small")
        store.remove(data.draw(st.lists(st.sampled_from(held), unique=True)) if held else [])
        if step % lives == lives - 1:
            store.remove(waiting["large"])
        if not waiting["large"]:
            store.put([entry(f"large-{next(numbers):04}", "large", now, gpu=data.draw(st.integers(6, 8)))])
        while cycle.run(now, 9, 9).picked:
            pass
        clock, found = accounts(store)
        kept = record(store, "large")
        keepings = max(keepings, 0 if kept is None else kept.vain)
        bound = 8 * (MOST_JOBS * keepings + 15 / hold + 1)
        assert all(-lag(account, clock) <= bound for account in found.values())


def test_withdrawal_before_room_is_reserved_is_not_charged() -> None:
    store, rules = waiting_for_room(patient=True)
    before = accounts(store)
    store.remove([LARGE.key])
    pick(store, rules, limit=0)
    assert accounts(store) == before


def test_a_passing_job_leaves_the_first_one_its_quota() -> None:
    store, rules = waiting_for_room(strict=False, jobs=2)
    store.put([entry("tiny", "x"), entry("tiny-too", "x", START + 1)])
    assert pick(store, rules) == ["tiny"]
    assert pick(store, rules) == []
    store.remove([key("runs"), *(key(f"small-{number}") for number in range(2))])
    assert pick(store, rules, limit=1) == ["large"]


def test_no_room_stays_kept_for_a_job_that_its_quota_no_longer_allows() -> None:
    store, rules = waiting_for_room(gpu=8)
    waiting = [each.entry for view in store.snapshot(99).queues for each in view.heads]
    store.rebuild(2, [*store.all_reservations().values(), reservation("own", "x", gpu=1)], waiting)
    pick(store, rules, limit=0)
    assert record(store) is None


def test_a_refused_batch_charges_nothing_and_the_next_one_charges_all() -> None:
    store, rules = waiting_for_room()
    picker = Picker(store.snapshot(99), rules)
    picker.patience = Patience(0.0, hold=HOLD)
    store.remove([LARGE.key, NEXT.key])
    store.put([entry("wide", "x", gpu=7)])
    batch = picker.picks(START + 15, 0)
    assert batch.settlement is not None
    stale = replace(batch, revision=batch.revision + 1)
    assert commit(store, stale).refused == "revision"
    assert paid(store) == 0
    store.put([LARGE, NEXT])
    pick(store, rules, START + 15, limit=0)
    assert paid(store) == 2 * 15 / HOLD


def test_a_round_without_picks_commits_what_is_paid() -> None:
    store, rules = waiting_for_room()
    rounds = PickCycle(store, rules, holds=lambda: [(HOLD, {GPU: 1})])
    assert rounds.run(START + 15, 0, 9).picked == 0
    assert rounds.keeps_room
    assert paid(store) == 2 * 15 / HOLD
    store.remove([LARGE.key, NEXT.key])
    rounds.run(START + 16, 0, 9)
    assert record(store) is None
    assert not rounds.keeps_room


def test_a_queue_that_left_and_is_made_even_by_a_charge_is_dropped_by_a_new_leader_as_well() -> None:
    """Queue a is ahead by the job of 2 GPUs that it has picked; it is even once x has paid as much."""
    held = [reservation("runs", "b", gpu=4)]
    store = opened(specs(a=1, b=1, x=1), [entry("one", "a", gpu=2), entry("first", "x", gpu=1)], {GPU: 8}, held)
    snapshot = store.snapshot(9)
    picker = Picker(snapshot, RULES)
    change = commit(store, picker.picks(START, 9)).change
    large = entry("large", "x", START, gpu=7)
    store.put([large])
    store.remove([key("one")])
    for second in range(4):
        picker.update(store.snapshot(9, since=change, known_heads=picker.needs_entries))
        new = Picker(store.snapshot(9), RULES)
        for each in (picker, new):
            each.patience = Patience(30.0, {}, 4.0)
            each.claims.hasten("x", large.key, START)
        batch = picker.picks(START + second, 9)
        assert batch.settlement == new.picks(START + second, 9).settlement
        change = commit(store, batch).change
    assert store.snapshot(0).queues[0].account == Account()


def test_every_store_commits_a_settlement_without_a_pick(store: QueueStore) -> None:
    store.configure(specs(a=1, b=1), None)
    store.put([entry("one", "a"), entry("two", "b")])
    before = store.snapshot(9)
    kept = OvertakenJob(key=key("one"), times=2, since=START, kept={GPU: 8, "jobs": 1}, paid=START + 1.5, vain=2)
    kept = replace(kept, kept_since=START + 0.5, collected_until=START + 30.5, uncollected=3)
    account = Account(base=-7, weight=1, largest=8)
    clock = before.clock._replace(served=5)
    batch = Batch(epoch=1, revision=before.revision, picks=(), change=before.change)
    committed = commit(store, replace(batch, settlement=Settlement(None, {}, {"a": kept})))
    assert (committed.refused, committed.picked, committed.alone) == ("", 0, True)
    shown = store.snapshot(9, before.change)
    assert [(view.spec.name, view.overtaken) for view in shown.queues] == [("a", kept)]
    assert shown.clock == before.clock
    settlement = Settlement(clock, {"b": account}, {"a": None})
    assert commit(store, replace(batch, revision=9, settlement=settlement)).refused == "revision"
    assert store.snapshot(9).queues[0].overtaken == kept
    assert not commit(store, replace(batch, settlement=settlement)).refused
    last = store.snapshot(9)
    assert (last.clock, last.queues[0].overtaken, last.queues[1].account) == (clock, None, account)
    assert store.inspect().faults == ()


def test_every_store_commits_a_settlement_only_if_all_picks_stand(store: QueueStore) -> None:
    store.configure(specs(a=1, b=1), None)
    store.put([entry("one", "a"), entry("two", "b")])
    batch = choose(store.snapshot(9), START, 9, RULES)
    account = Account(base=-7, weight=1, largest=8)
    settlement = Settlement(batch.picks[-1].clock._replace(served=99), {"a": account}, {})
    cut_short = batch.picks[1]._replace(waiting=batch.picks[0].waiting)
    assert commit(store, replace(batch, picks=(batch.picks[0], cut_short), settlement=settlement)).refused == "entry"
    assert accounts(store) == (batch.picks[0].clock, batch.picks[0].accounts)
    store.rebuild(2, [], [entry("one", "a"), entry("two", "b")])
    batch = choose(store.snapshot(9), START, 9, RULES)
    assert not commit(store, replace(batch, settlement=settlement)).refused
    assert accounts(store)[0].served == 99
    assert accounts(store)[1]["a"] == account
