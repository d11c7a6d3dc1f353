"""Reserved room: the pool reserves room for one job at a time, and its queue pays even if the job is withdrawn."""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import count

import pytest

from crds.keys import JobKey
from queues.pick_cycle import PickCycle
from queues.picking.picker import Picker
from queues.rules import PickRules
from queues.store import QueueStore
from queues.values import Account, Batch, Clock, OvertakenJob, QueueSpec, Settlement
from tests.doubles.memory_store import MemoryStore
from tests.support.queues.builders import GPU, START, choose, commit, entry, key, reservation, resources, spec, specs

OTHERS = "abcde"
POOL = 64
SECONDS = 100
"""How long a job of the other queues runs."""


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
        self.rounds = PickCycle(self.store, self.rules)

    @property
    def free(self) -> int:
        return POOL - self.store.snapshot(0).pool_usage.get(GPU, 0)

    def second(self) -> None:
        """Simulate one second: end jobs, submit new ones, start all that fit, and add up usage and idle GPUs."""
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
    """Submit a job as large as the pool, withdraw it when it is about to start, and repeat."""
    for number in count(1):
        job = entry(f"large-{number}", "x", cluster.now, gpu=POOL)
        cluster.store.put([job])
        while cluster.free < POOL - 4 and job.key not in cluster.store.reservations():
            yield
        cluster.store.remove([job.key])
        yield


def alternate(cluster: Cluster) -> Iterator[None]:
    """Act as `withdraw`, from two queues in turn."""
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
    """Submit two jobs as large as the pool, and give the higher priority to one and the other in turn."""
    for turn in count(1):
        for number in (1, 2):
            priority = turn if turn % 2 == number % 2 else 0
            cluster.store.put([entry(f"large-{number}", "x", START, priority, gpu=POOL)])
        while cluster.free < POOL - 4:
            yield
        yield


def close_in(cluster: Cluster) -> Iterator[None]:
    """Shrink a large job just before it starts, so that a small one uses the room reserved for the large one."""
    for number in count(1):
        job = entry(f"large-{number}", "x", cluster.now, gpu=POOL)
        cluster.store.put([job])
        while cluster.free < POOL - 4:
            yield
        cluster.store.put([replace(job, demand=job.demand | {GPU: 1})])
        yield


def outgrow(cluster: Cluster) -> Iterator[None]:
    """Use up some quota of a large job by a small one of its queue whenever the large job is about to start."""
    yield from _hinder(cluster, "x")


def borrow(cluster: Cluster) -> Iterator[None]:
    """Use up some quota that a large job would borrow by a small job of the lender, whenever it is about to start."""
    yield from _hinder(cluster, "y")


def block(cluster: Cluster) -> Iterator[None]:
    """Run a small job that never ends, and submit a job that needs the room of the small one."""
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
    assert cluster.used["x"] / total > 0.1
    assert cluster.idle / total <= 1 / (1 + len(OTHERS))


def blocked_by_its_own_queue() -> MemoryStore:
    """Return a store with a pool of 8 GPUs: queue x uses 4 GPUs and requests 8, and jobs of queue a use the others."""
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
    assert pick(store, RULES) == ["small-13"], "its patience begins"
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
"""Room is reserved for a job as soon as another one has overtaken it."""
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
    """Commit the picks of one snapshot, even if there are none, and return the names of the admitted jobs."""
    committed = commit(store, choose(store.snapshot(99), now, limit, rules))
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


@pytest.mark.parametrize("withdrawal", WITHDRAWALS.values(), ids=WITHDRAWALS)
def test_withdrawn_job_with_reserved_room_is_charged_like_a_pick(
    withdrawal: Callable[[MemoryStore], object],
) -> None:
    started, rules = waiting_for_room()
    started.remove([key("runs"), *(key(f"small-{number}") for number in range(2))])
    assert pick(started, rules, limit=1) == ["large"]
    store, _ = waiting_for_room()
    withdrawal(store)
    assert pick(store, rules, limit=0) == []
    assert accounts(store) == accounts(started)
    again, _ = waiting_for_room()
    withdrawal(again)
    assert pick(again, rules, limit=1) == pick(store, rules, limit=1), "it makes no difference when the store is told"
    assert accounts(again) == accounts(store)


def test_job_hidden_behind_jobs_that_can_never_run_is_charged() -> None:
    store, rules = waiting_for_room()
    before = accounts(store)
    store.put([entry(f"hopeless-{number}", "x", START, 9, gpu=9) for number in range(20)])
    assert not commit(store, choose(store.snapshot(30), START, 0, rules)).refused
    assert accounts(store) == before, "the job is still the first one that could run"
    assert not commit(store, choose(store.snapshot(20), START, 0, rules)).refused
    assert accounts(store) != before


def test_withdrawn_last_job_of_a_queue_is_charged() -> None:
    store, rules = waiting_for_room()
    store.remove([LARGE.key, NEXT.key])
    pick(store, rules)
    store.put([LARGE, NEXT])
    store.remove([key("runs"), *(key(f"small-{number}") for number in range(2))])
    assert "large" not in pick(store, rules)


def test_reserved_room_is_charged_once() -> None:
    store, rules = waiting_for_room()
    store.remove([LARGE.key])
    pick(store, rules, limit=0)
    paid = accounts(store)
    for _ in range(3):
        store.put([LARGE])
        pick(store, rules, limit=0)
        store.remove([LARGE.key])
        pick(store, rules, limit=0)
    assert accounts(store) == paid


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
        lambda store: store.remove([key("runs")]),  # the job will start soon
        close,
        smaller_pool,
        lambda store: (close(store), store.remove([LARGE.key])),
        lambda store: (smaller_pool(store), store.configure([STRICT, spec("a")], {GPU: 8})),
        lambda store: store.configure([spec("a")], {GPU: 8}),
        lambda store: store.put([replace(LARGE, priority=3), replace(NEXT, demand=NEXT.demand | {GPU: 1})]),
        lambda store: store.rebuild(2, store.all_reservations().values(), [LARGE, NEXT]),
    ],
)
def test_reserved_room_lost_without_the_owners_action_is_not_charged(change: Callable[[MemoryStore], object]) -> None:
    store, rules = waiting_for_room()
    before = accounts(store)
    change(store)
    pick(store, rules, limit=0)
    assert accounts(store) == before or "x" not in accounts(store)[1]


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


def test_a_job_that_its_quota_no_longer_allows_is_paid_for() -> None:
    store, rules = waiting_for_room(gpu=8)
    before = accounts(store)
    waiting = [each.entry for view in store.snapshot(99).queues for each in view.heads]
    store.rebuild(2, [*store.all_reservations().values(), reservation("own", "x", gpu=1)], waiting)
    pick(store, rules, limit=0)
    assert accounts(store) != before
    assert store.snapshot(0).queues[1].overtaken is None


def test_a_new_leader_collects_debts() -> None:
    store, rules = waiting_for_room()
    lost, _ = waiting_for_room()
    lost.remove([LARGE.key])
    pick(lost, rules, limit=0)
    waiting = [each.entry for view in store.snapshot(99).queues for each in view.heads]
    store.rebuild(2, store.all_reservations().values(), [each for each in waiting if each != LARGE])
    pick(store, rules, limit=0)
    assert accounts(store) == accounts(lost)


def test_refused_batch_charges_nothing_and_the_next_one_charges_all() -> None:
    store, rules = waiting_for_room()
    first = store.snapshot(99)
    picker = Picker(first, rules)
    before = accounts(store)
    store.remove([LARGE.key])
    picker.update(store.snapshot(99, first.change))
    batch = picker.picks(START, 9)
    assert [each.waiting.entry.key.name for each in batch.picks][:1] == ["small-2"]
    store.remove([key("small-2")])
    assert commit(store, batch).refused == "entry"
    assert accounts(store) == before
    pick(store, rules, limit=0)
    expected, _ = waiting_for_room()
    expected.remove([LARGE.key])
    pick(expected, rules, limit=0)
    assert accounts(store) == accounts(expected)


def test_a_round_without_picks_commits_debts() -> None:
    store, rules = waiting_for_room()
    rounds = PickCycle(store, rules)
    before = accounts(store)
    store.remove([LARGE.key, *(key(f"small-{number}") for number in range(2, 40))])
    assert rounds.run(START, 0, 9).picked == 0
    assert accounts(store) != before
    assert all(view.overtaken is None for view in store.snapshot(0).queues)


def test_every_store_commits_a_settlement_without_a_pick(store: QueueStore) -> None:
    store.configure(specs(a=1, b=1), None)
    store.put([entry("one", "a"), entry("two", "b")])
    before = store.snapshot(9)
    kept = OvertakenJob(key=key("one"), times=2, since=START, kept={GPU: 8, "jobs": 1})
    paid = Account(base=-7, weight=1, largest=8)
    clock = before.clock._replace(served=5)
    batch = Batch(epoch=1, revision=before.revision, picks=(), change=before.change)
    committed = commit(store, replace(batch, settlement=Settlement(None, {}, {"a": kept})))
    assert (committed.refused, committed.picked, committed.alone) == ("", 0, True)
    shown = store.snapshot(9, before.change)
    assert [(view.spec.name, view.overtaken) for view in shown.queues] == [("a", kept)]
    assert shown.clock == before.clock
    settlement = Settlement(clock, {"b": paid}, {"a": None})
    assert commit(store, replace(batch, revision=9, settlement=settlement)).refused == "revision"
    assert store.snapshot(9).queues[0].overtaken == kept
    assert not commit(store, replace(batch, settlement=settlement)).refused
    last = store.snapshot(9)
    assert (last.clock, last.queues[0].overtaken, last.queues[1].account) == (clock, None, paid)
    assert store.inspect().faults == ()


def test_every_store_commits_a_settlement_only_if_all_picks_stand(store: QueueStore) -> None:
    store.configure(specs(a=1, b=1), None)
    store.put([entry("one", "a"), entry("two", "b")])
    batch = choose(store.snapshot(9), START, 9, RULES)
    paid = Account(base=-7, weight=1, largest=8)
    settlement = Settlement(batch.picks[-1].clock._replace(served=99), {"a": paid}, {})
    cut_short = batch.picks[1]._replace(waiting=batch.picks[0].waiting)
    assert commit(store, replace(batch, picks=(batch.picks[0], cut_short), settlement=settlement)).refused == "entry"
    assert accounts(store) == (batch.picks[0].clock, batch.picks[0].accounts)
    store.rebuild(2, [], [entry("one", "a"), entry("two", "b")])
    batch = choose(store.snapshot(9), START, 9, RULES)
    assert not commit(store, replace(batch, settlement=settlement)).refused
    assert accounts(store)[0].served == 99
    assert accounts(store)[1]["a"] == paid
