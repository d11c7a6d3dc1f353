"""Backfilling: room reserved for one job is lent only to jobs that end before that job can start."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import count

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crds.keys import JobKey
from crds.resources import amounts
from crds.resources.amounts import Amounts
from queues.pick_cycle import PickCycle
from queues.picking.backfill import LOANS, End, JobEnds, Shadows, shadow_time
from queues.picking.picker import Picker
from queues.rules import PickRules
from queues.store import QueueStore
from queues.values import Entry, QueueSpec
from tests.doubles.memory_store import MemoryStore
from tests.support.queues.builders import GPU, START, entry, key, reservation, resources, spec

RULES = PickRules(cost=GPU, longest_patience=0.0)


# The shadow time


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({"gpu": 1}, 0.0),
        ({"gpu": 4}, 60.0),
        ({"gpu": 5}, 100.0),
        ({"gpu": 7}, 100.0),
        ({"gpu": 8}, None),
        ({"gpu": 4, "cpu": 8}, 100.0),
        ({"cpu": 9}, None),
        ({"gpu": 1, "memory": 10**9}, 0.0),
    ],
)
def test_shadow_time_is_when_enough_jobs_have_ended(asked: dict[str, int], expected: float | None) -> None:
    ends = [(60.0, resources(gpu=3, cpu=1)), (100.0, resources(gpu=3, cpu=7))]
    used, capacity = resources(gpu=7, cpu=8), resources(gpu=8, cpu=8)
    assert shadow_time(resources(**asked), used, capacity, ends, 0.0) == expected


@pytest.mark.parametrize(
    ("limit", "expected"), [({"*": 4, GPU: 8}, 60.0), ({GPU: 8}, 0.0), ({}, 0.0), ({"*": 0}, None)]
)
def test_resources_count_as_the_pool_limits_them(limit: Amounts, expected: float | None) -> None:
    ends = [(60.0, resources(cpu=4))]
    assert shadow_time(resources(cpu=4, jobs=1), resources(cpu=4), limit, ends, 0.0) == expected


def test_shadow_time_ignores_jobs_past_their_expected_end() -> None:
    ends = [(60.0, resources(gpu=4)), (90.0, resources(gpu=4))]
    used, capacity = resources(gpu=8), resources(gpu=8)
    assert shadow_time(resources(gpu=4), used, capacity, ends, 59.0) == 60.0
    assert shadow_time(resources(gpu=4), used, capacity, ends, 60.0) == 90.0
    assert shadow_time(resources(gpu=8), used, capacity, ends, 60.0) is None


@given(
    st.lists(st.tuples(st.floats(1, 100), st.integers(0, 4), st.integers(0, 4)), max_size=8),
    st.integers(0, 12),
    st.integers(0, 12),
)
def test_shadow_time_is_the_first_end_at_which_the_demand_fits(
    found: list[tuple[float, int, int]], gpu: int, cpu: int
) -> None:
    ends: list[End] = [(end, resources(gpu=one, cpu=two)) for end, one, two in sorted(found)]
    used = {name: sum(charge[name] for _, charge in ends) + 1 for name in (GPU, "cpu")}
    demand, capacity = resources(gpu=gpu, cpu=cpu), {GPU: used[GPU] + 1, "cpu": used["cpu"] + 1}

    def fits(at: float) -> bool:
        still: Mapping[str, int] = used
        for end, charge in ends:
            still = amounts.subtract(still, charge) if end <= at else still
        return amounts.fits(demand, still, capacity)

    moment = shadow_time(demand, used, capacity, ends, 0.0)
    moments = [0.0, *(end for end, _ in ends)]
    assert moment == next((each for each in moments if fits(each)), None)


def test_shadows_lower_never_moves_a_shadow_time_later() -> None:
    shadows, job = Shadows(), key("large")
    assert shadows.lower(job, lambda: 50.0) is None, "the room was kept by another process before"
    shadows.begin(job)
    found = [shadows.lower(job, lambda moment=moment: moment) for moment in (None, 60.0, 70.0, None, 50.0, 60.0)]
    assert found == [None, 60.0, 60.0, 60.0, 50.0, 50.0]
    shadows.begin(job)
    assert shadows.lower(job, lambda: 99.0) == 50.0, "the job is still the same"
    shadows.drop_others([])
    assert shadows.lower(job, lambda: 40.0) is None
    shadows.begin(job)
    assert shadows.lower(job, lambda: 99.0) == 99.0


# Loans

LARGE = entry("large", "x", START - 9, gpu=8)
SMALL = ["small-1", "small-2"]


@dataclass
class Room:
    """A pool of 8 GPUs that is reserved whole for a large job of queue x, after small jobs have overtaken it.

    The job "long" uses 3 GPUs for 100 s, and two small jobs use 1 and 2 GPUs for 50 s.
    """

    queues: list[QueueSpec] = field(default_factory=lambda: [spec("x"), spec("a"), spec("b")])
    longest: dict[str, float] = field(default_factory=dict)
    ends: dict[str, float] = field(default_factory=lambda: {"long": 100.0} | dict.fromkeys(SMALL, 50.0))
    store: QueueStore = field(default_factory=lambda: MemoryStore(lambda *_: None))
    large: Entry = LARGE
    pool: dict[str, int] = field(default_factory=lambda: {GPU: 8})

    def __post_init__(self) -> None:
        epoch = self.store.epoch() + 1
        self.store.rebuild(epoch, [reservation("long", "a", epoch=epoch, gpu=3)], [])
        self.store.configure(self.queues, self.pool)
        self.rounds = self.leader()
        self.put(self.large, *(entry(f"small-{size}", "a", START + size, gpu=size) for size in (1, 2)))
        assert self.pick(-1.0) == SMALL
        assert self.record() is not None

    def leader(self) -> PickCycle:
        return PickCycle(self.store, RULES, self.forecast)

    def forecast(self) -> JobEnds:
        held = self.store.reservations()
        ends = [(START + self.ends[job.name], each.charge) for job, each in held.items() if job.name in self.ends]
        queues = frozenset(each.queue for each in self.waiting() if each.key.name in self.longest)
        longest = {str(key(name)): seconds for name, seconds in self.longest.items()}
        return JobEnds(tuple(sorted(ends, key=lambda end: end[0])), longest, queues)

    def waiting(self) -> list[Entry]:
        return [each.entry for view in self.store.snapshot(99).queues for each in view.heads]

    def put(self, *jobs: Entry, **longest: float) -> None:
        self.longest.update({name.replace("_", "-"): seconds for name, seconds in longest.items()})
        self.store.put(jobs)

    def pick(self, at: float = 0.0, limit: int = 99) -> list[str]:
        made: list[str] = []
        for _ in range(9):
            found = self.rounds.run(START + at, limit, 99)
            assert not found.refused
            made += [each.key.name for each in found.reservations]
        return made

    def record(self) -> Amounts | None:
        """Return the amounts that the store reserves for queue x, or None."""
        found = next(view.overtaken for view in self.store.snapshot(0).queues if view.spec.name == "x")
        return None if found is None else found.kept


def test_reserved_room_is_lent_only_to_jobs_that_end_by_the_shadow_time() -> None:
    room = Room()
    room.put(entry("longer", "b", gpu=1), entry("in-time", "b", START + 1, gpu=1), entry("any", "b", START + 2, gpu=1))
    room.put(longer=100.5, in_time=100.0)
    assert room.pick() == ["in-time"]


def test_without_known_job_ends_there_are_no_loans() -> None:
    room = Room()
    room.rounds = PickCycle(room.store, RULES)
    room.put(entry("short", "b", gpu=1), short=1.0)
    assert room.pick() == []


def test_reserved_room_is_not_lent_while_the_shadow_time_is_unknown() -> None:
    room = Room(ends=dict.fromkeys(SMALL, 50.0))
    room.put(entry("short", "b", gpu=1), short=1.0)
    assert room.pick() == []


def test_loan_needs_enough_free_room_in_the_pool() -> None:
    room = Room()
    room.put(entry("wide", "b", gpu=3), entry("narrow", "b", START + 1, gpu=2), wide=10.0, narrow=10.0)
    assert room.pick() == ["narrow"]


def test_loan_charges_the_borrowing_queue_and_the_large_job_still_pays() -> None:
    room = Room()
    before = accounts(room.store)
    room.put(entry("short", "b", gpu=2), short=10.0)
    assert room.pick() == ["short"]
    assert accounts(room.store)["b"] > before["b"]
    assert room.record() == LARGE.demand
    room.store.remove([LARGE.key])
    room.pick(1.0)
    assert accounts(room.store)["x"] > before["x"], "the large job is withdrawn, so its queue pays for the room"


def accounts(store: QueueStore) -> dict[str, int]:
    return {view.spec.name: view.account.base for view in store.snapshot(0).queues}


def test_loans_follow_the_fair_order_of_queues() -> None:
    room = Room([spec("x"), spec("a"), spec("b"), spec("c", 3)])
    room.store.remove([key("long")])
    for name in ("b", "c"):
        room.put(*(entry(f"{name}-{number}", name, START + number, gpu=1) for number in range(8)))
        room.longest |= {f"{name}-{number}": 10.0 for number in range(8)}
    found = [name[0] for name in room.pick()]
    assert (found[0], Counter(found)) == ("c", {"b": 1, "c": 4}), "the larger weight goes first and gets more"


def test_large_job_that_fits_starts_before_any_loan() -> None:
    room = Room()
    room.put(*(entry(f"short-{number}", "b", START + number, gpu=1) for number in range(9)))
    room.longest |= {f"short-{number}": 1.0 for number in range(9)}
    room.store.remove([key(name) for name in ("long", *SMALL)])
    assert room.pick(5.0)[0] == "large"


def test_loan_that_would_end_after_the_shadow_time_is_refused() -> None:
    room = Room()
    room.put(entry("first", "b", gpu=1), first=10.0)
    assert room.pick() == ["first"]
    room.ends["long"] = 500.0  # the job runs past its expected end
    room.put(entry("second", "b", gpu=1), second=10.0)
    assert room.pick(95.0) == []


def test_a_new_leader_lends_nothing_of_an_older_reservation() -> None:
    room = Room()
    room.put(entry("short", "b", gpu=1), short=10.0)
    first, room.rounds = room.rounds, room.leader()
    assert room.pick() == []
    room.rounds = first
    assert room.pick() == ["short"]


@pytest.mark.parametrize(("strict", "expected"), [(False, ["own"]), (True, [])])
def test_job_of_the_same_queue_gets_a_loan_unless_the_queue_is_strict(strict: bool, expected: list[str]) -> None:
    room = Room([replace(spec("x"), strict=strict), spec("a"), spec("b")])
    room.put(entry("own", "x", gpu=1), own=10.0)
    assert room.pick() == expected


def test_job_with_a_deadline_gets_a_loan_before_one_without() -> None:
    room = Room()
    room.put(entry("any", "b", gpu=1), entry("short", "b", START + 1, gpu=1), short=10.0)
    assert room.pick() == ["short"]


def test_loan_in_the_same_queue_leaves_the_quota_of_the_large_job() -> None:
    room = Room([spec("x", jobs=1), spec("a"), spec("b")])
    room.put(entry("own", "x", gpu=1), own=10.0)
    assert room.pick() == []
    assert room.record() == LARGE.demand


@pytest.mark.parametrize(
    ("own", "others", "expected"),
    [
        pytest.param(8, 2, ["short"], id="every queue has its own quota"),
        pytest.param(8, 0, [], id="the other queue borrows what the large job needs"),
    ],
)
def test_loan_in_the_same_cohort_leaves_the_quota_of_the_large_job(own: int, others: int, expected: list[str]) -> None:
    members = [replace(spec("x", gpu=own), cohort="team"), replace(spec("b", gpu=others), cohort="team")]
    room = Room([*members, spec("a")])
    room.put(entry("short", "b", gpu=2), short=10.0)
    assert room.pick() == expected
    assert room.record() == LARGE.demand, "quota and cohort still have room for the large job"


@pytest.mark.parametrize(("claimed", "expected"), [(False, ["short"]), (True, [])])
def test_loan_leaves_the_first_job_of_its_queue_the_quota_that_it_claims(claimed: bool, expected: list[str]) -> None:
    room = Room([spec("x"), spec("a"), spec("b", cpu=4)])
    room.put(entry("own", "b", cpu=2))
    assert room.pick() == ["own"]
    waits = entry("waits", "b", START + 1, cpu=4)
    if claimed:
        room.rounds.claim("b", waits.key)
    wide, short = entry("wide", "b", START + 2, gpu=3), entry("short", "b", START + 3, cpu=1, gpu=1)
    room.put(waits, wide, short, short=10.0)
    assert room.pick() == expected


def test_closed_queue_gets_no_loan() -> None:
    room = Room([spec("x"), spec("a"), replace(spec("b"), open=False)])
    room.put(entry("short", "b", gpu=1), short=10.0)
    assert room.pick() == []


def test_every_store_commits_a_loan(store: QueueStore) -> None:
    """A commit checks the room in the pool and ignores for which job it is reserved."""
    room = Room(store=store)
    room.put(entry("short", "b", gpu=2), short=10.0)
    assert room.pick() == ["short"]
    assert store.snapshot(0).pool_usage[GPU] == 8


def test_a_batch_has_at_most_the_limit_of_loans() -> None:
    room = Room(large=replace(LARGE, demand={**LARGE.demand, "cpu": 90}), pool={GPU: 8, "cpu": 90})
    room.put(*(entry(f"b-{number:03}", "b", START + number, cpu=1) for number in range(LOANS + 9)))
    room.longest |= {f"b-{number:03}": 10.0 for number in range(LOANS + 9)}
    shadows = Shadows()
    shadows.begin(LARGE.key)
    picker = Picker(room.store.snapshot(99), RULES, shadows)
    picker.prepare_loans(START, room.forecast)
    assert LOANS // 2 < len(picker.picks(START, 512).picks) <= LOANS
    assert len(room.pick()) == LOANS + 9, "the other jobs are picked with the next batch"


# Over time


@dataclass
class Job:
    """A job with the time that it really runs, and its deadline or None."""

    entry: Entry
    runs: int
    deadline: int | None


@dataclass
class Cluster:
    """A simulated pool on which each job runs for its time, at most until its deadline."""

    jobs: list[Job]
    pool: int
    lends: bool
    now: int = 0
    used: int = 0
    ends: dict[JobKey, int] = field(default_factory=dict)
    known: dict[JobKey, tuple[float, Amounts]] = field(default_factory=dict)
    started: dict[str, int] = field(default_factory=dict)
    first_shadow: dict[str, float] = field(default_factory=dict)
    since: dict[str, float] = field(default_factory=dict)
    """The time of each job at which it was overtaken first."""

    def __post_init__(self) -> None:
        self.of = {each.entry.key: each for each in self.jobs}
        self.store = MemoryStore(lambda *_: None)
        self.store.rebuild(1, [], [])
        self.store.configure([spec(name) for name in "abc"], {GPU: self.pool})
        self.rounds = PickCycle(self.store, RULES, self.forecast, holds=lambda: [(10.0, {GPU: 1})])

    def forecast(self) -> JobEnds | None:
        ends = sorted(self.known.values(), key=lambda end: end[0])
        for view in self.store.snapshot(0).queues:
            kept = view.overtaken
            if kept is not None:
                self.since[kept.key.name] = kept.since
            if kept is not None and kept.kept is not None and kept.key.name not in self.first_shadow:
                used = self.store.snapshot(0).pool_usage
                found = shadow_time(kept.kept, used, {GPU: self.pool}, ends, START + self.now)
                if found is not None:
                    self.first_shadow[kept.key.name] = found - START
        if not self.lends:
            return None
        waiting = [each.entry.key for view in self.store.snapshot(99).queues for each in view.heads]
        longest = {str(job): float(seconds) for job in waiting if (seconds := self.of[job].deadline) is not None}
        return JobEnds(tuple(ends), longest, frozenset("abc"))

    def run(self, until: int) -> None:
        for self.now in range(until):
            arrived = [each.entry for each in self.jobs if each.entry.submitted == START + self.now]
            self.store.put(arrived)
            ended = [job for job, end in self.ends.items() if end <= self.now]
            self.store.remove(ended)
            for job in ended:
                del self.ends[job]
                self.known.pop(job, None)
            while self.rounds.run(START + self.now, 99, 99).picked:
                self._begin()
            self.used += self.store.snapshot(0).pool_usage.get(GPU, 0)

    def _begin(self) -> None:
        for job, held in self.store.reservations().items():
            if job not in self.ends:
                self.started[job.name] = self.now
                made = self.of[job]
                self.ends[job] = self.now + made.runs
                if made.deadline is not None:
                    self.known[job] = START + self.now + made.deadline, held.charge


@st.composite
def workloads(draw: st.DrawFn) -> list[Job]:
    """Generate jobs of different sizes in three queues."""
    numbers = count()

    def one() -> Job:
        deadline = draw(st.integers(1, 30))
        runs = draw(st.integers(1, deadline))
        made = entry(
            f"job-{next(numbers):03}",
            draw(st.sampled_from("abc")),
            START + draw(st.integers(0, 20)),
            gpu=draw(st.sampled_from([1, 1, 1, 2, 3, 8])),
        )
        return Job(made, runs, None if draw(st.integers(0, 5)) == 0 else deadline)

    return [one() for _ in range(draw(st.integers(4, 30)))]


@settings(max_examples=60, deadline=None)
@given(workloads())
def test_job_with_reserved_room_starts_by_its_first_shadow_time(jobs: list[Job]) -> None:
    """The bound holds only while no other queue has reserved room: a job that was overtaken earlier, or at the same
    time, may start first.
    """
    cluster = Cluster(jobs, pool=8, lends=True)
    cluster.run(120)
    alone = set(cluster.first_shadow) if len(cluster.first_shadow) == 1 else set()
    others = {name: [since for job, since in cluster.since.items() if job != name] for name in alone}
    alone = {name for name in alone if all(cluster.since[name] < since for since in others[name])}
    for name in alone & cluster.started.keys():
        assert cluster.started[name] <= cluster.first_shadow[name]
    for name in alone - cluster.started.keys():
        assert cluster.first_shadow[name] >= 120


def stream() -> Iterable[Job]:
    """Yield a job that runs for 100 s, a job as large as the pool, and many short jobs."""
    yield Job(entry("runs", "a", START, gpu=4), 100, 100)
    yield Job(entry("large", "b", START + 1, gpu=8), 20, 20)
    for number in range(600):
        seconds = 1 + number % 7
        yield Job(entry(f"short-{number:03}", "ac"[number % 2], START + 1 + number / 4, gpu=1), seconds, seconds + 2)


def test_loans_to_short_jobs_raise_utilisation_without_delaying_the_large_job() -> None:
    jobs = [replace(each, entry=replace(each.entry, submitted=float(int(each.entry.submitted)))) for each in stream()]
    lending, keeping = Cluster(jobs, 8, lends=True), Cluster(jobs, 8, lends=False)
    lending.run(130)
    keeping.run(130)
    assert lending.started["large"] <= lending.first_shadow["large"] == 100
    assert keeping.started["large"] <= 100
    assert lending.used > keeping.used * 1.2
