"""The fairness of picks: how close the admitted cost of each queue stays to its weight, and how long a job may wait.

One rule: pure. The jobs come from a seed, the coordinator's own picker decides, and only the simulation moves the
clock.
"""

import heapq
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count

from bench.benchmarks.games import growths, orders, withdrawals
from bench.options import option
from bench.report import Figures
from bench.support.arena import GPU, START, Production, entry
from bench.support.panels import PANELS, Line, Panel
from crds.keys import JobKey
from queues.rules import PickRules
from queues.values import Entry, QueueSpec

WEIGHTS: Mapping[str, int] = {"a": 5, "b": 3, "c": 1, "d": 1}
CHURNED: Mapping[str, int] = {f"q{number:02}": 1 + number * 49 // 19 for number in range(20)}
SIZES = (1, 2, 4, 8)
_BACKLOG = 4
_CHURN = 0.05
"""The probability at each pick that a queue empties, returns or changes its weight."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The size of the measurement."""

    picks: int = option(20_000)
    pool: int = option(0, "shared GPUs; 0: no limit", least=0)
    batch: int = option(128, "most picks per commit")
    games: bool = option(False, "measure queues that try to gain more than their share")
    """Each game of `games.orders` has a twentieth of `picks` as its picks; each game of `games.withdrawals` and of
    `games.growths` takes as many seconds."""
    seed: int = option(1, least=None)


SHORT = Options(picks=1_000)
_PART = 20


@dataclass(frozen=True, slots=True)
class Admission:
    """A pick, and the weights of the queues that contended for it."""

    queue: str
    cost: int
    weights: Mapping[str, int]


def run(options: Options) -> Figures:
    """Measure jobs of 1, 2, 4 and 8 GPUs: first in queues that always have waiting jobs, then in queues that come, go
    and change."""
    if options.games:
        part = max(1, options.picks // _PART)
        played = (each.run(part, options.seed) for each in (orders, withdrawals, growths))
        return {name: figure for figures in played for name, figure in figures.items()}
    steady = list(admissions(options))
    in_order, fixed, churned = [(pick.queue, pick.cost) for pick in steady], measure(steady), measure(churn(options))
    title = "GPUs admitted beyond the weight's part of all so far"
    return {
        "picked": options.picks,
        "largest_job_gpus": max(SIZES),
        "worst_deviation_gpus": fixed["worst_deviation_gpus"],
        "worst_wait_fair_turns": churned["worst_wait_fair_turns"],
        "longest_run_after_idle": churned["longest_run_after_idle"],
        "steady_worst_wait_fair_turns": fixed["worst_wait_fair_turns"],
        "churn_worst_deviation_gpus": churned["worst_deviation_gpus"],
        **share(in_order, WEIGHTS),
        "large_job": large_job(PickRules(cost=GPU)),
        PANELS: [Panel(title, "picks", "GPUs", distances(in_order, WEIGHTS))],
    }


def share(admitted: Sequence[tuple[str, int]], weights: Mapping[str, int]) -> Figures:
    """Return the largest deviation of any queue from its share, and the final shares, of admissions (queue, cost) in
    order.

    A queue's share of the admitted cost is in proportion to its weight. The deviation is the largest deviation over all
    prefixes, in units of the largest job."""
    total, largest = sum(size for _, size in admitted), max(size for _, size in admitted)
    worst = max(abs(away) for line in distances(admitted, weights).values() for _, away in line)
    return {
        "worst_prefix_deviation": worst / largest,
        "target": {name: weight / sum(weights.values()) for name, weight in weights.items()},
        "shares": {name: sum(size for queue, size in admitted if queue == name) / total for name in weights},
    }


def distances(admitted: Iterable[tuple[str, int]], weights: Mapping[str, int]) -> Mapping[str, Line]:
    """Return each queue's deviation from its share after every pick."""
    total_weight, total = sum(weights.values()), 0
    cost = dict.fromkeys(weights, 0)
    lines: dict[str, list[tuple[float, float]]] = {name: [] for name in weights}
    for number, (queue, size) in enumerate(admitted, start=1):
        cost[queue] += size
        total += size
        for name, weight in weights.items():
            lines[name].append((number, cost[name] - total * weight / total_weight))
    return lines


def measure(admitted: Iterable[Admission]) -> Figures:
    """Compare admissions with the fluid shares of the queues that contend at each pick. Return three figures:

    - the largest deviation; a queue that joins begins with none
    - the longest wait in a queue's fair turns; a turn is the time in which the queue earns one job of mean size
    - the most picks in a row of a queue that has just come back"""
    observer = _Observer()
    for pick in admitted:
        observer.see(pick)
    return {
        "worst_deviation_gpus": observer.worst,
        "worst_wait_fair_turns": observer.longest_wait * observer.picks / observer.cost,
        "longest_run_after_idle": observer.longest_run,
    }


@dataclass(slots=True)
class _Observer:
    """The fluid shares up to the present pick."""

    picks: int = 0
    cost: int = 0
    worst: float = 0.0
    longest_wait: float = 0.0
    longest_run: int = 0
    _weights: Mapping[str, int] = field(default_factory=dict)
    _behind: dict[str, float] = field(default_factory=dict)
    """The cost that each contending queue has earned since it joined, less the cost of its picks."""
    _waited: dict[str, float] = field(default_factory=dict)
    """The cost that each queue has earned since its last pick."""
    _joined: set[str] = field(default_factory=set)
    """The queues that came back and were not picked yet."""
    _runner: str = ""
    _run: int = 0

    def see(self, pick: Admission) -> None:
        """Count a pick."""
        if pick.weights != self._weights:
            self._join(pick.weights)
        whole = sum(self._weights.values())
        for name, weight in self._weights.items():
            self._behind[name] += pick.cost * weight / whole
            self._waited[name] += pick.cost * weight / whole
        self.picks += 1
        self.cost += pick.cost
        self.longest_wait = max(self.longest_wait, self._waited[pick.queue])
        self._waited[pick.queue] = 0.0
        self._behind[pick.queue] -= pick.cost
        self.worst = max(self.worst, *map(abs, self._behind.values()))
        self._follow(pick.queue)

    def _join(self, weights: Mapping[str, int]) -> None:
        same = {name for name, weight in weights.items() if self._weights.get(name) == weight}
        if self._weights:
            self._joined |= weights.keys() - self._weights.keys()
        self._joined &= weights.keys()
        self._behind = {name: self._behind[name] if name in same else 0.0 for name in weights}
        self._waited = {name: self._waited[name] if name in same else 0.0 for name in weights}
        self._weights = dict(weights)

    def _follow(self, queue: str) -> None:
        if queue in self._joined:
            self._joined.discard(queue)
            self._runner, self._run = queue, 1
        elif queue == self._runner:
            self._run += 1
        else:
            self._runner, self._run = "", 0
        self.longest_run = max(self.longest_run, self._run)


def admissions(options: Options) -> Iterator[Admission]:
    """Yield the picks while every queue always has jobs. With a pool, jobs run for 1 to 100 s and then free their
    GPUs."""
    arena = _arena(WEIGHTS, options.pool)
    source = _Source(options.seed)
    lengths = random.Random(options.seed + 1)
    for queue in WEIGHTS:
        source.fill(arena, queue, options.batch + _BACKLOG)
    running: list[tuple[float, JobKey, Entry]] = []
    now, remaining = START, options.picks
    while remaining:
        admitted = arena.admit(now, min(remaining, options.batch))
        for pick in admitted:
            if options.pool:
                heapq.heappush(running, (now + lengths.uniform(1.0, 100.0), pick.key, pick))
            source.fill(arena, pick.queue, 1)
            yield Admission(pick.queue, pick.demand[GPU], WEIGHTS)
        remaining -= len(admitted)
        if not admitted:
            now, _, ended = heapq.heappop(running)
            arena.release(ended)


def churn(options: Options) -> Iterator[Admission]:
    """Yield the picks among 20 queues with weights 1 to 50. At random, a queue empties, returns or changes its
    weight."""
    arena = _arena(CHURNED, 0)
    source, fate = _Source(options.seed), random.Random(options.seed + 2)
    for queue in CHURNED:
        source.fill(arena, queue, _BACKLOG)
    for _ in range(options.picks):
        if fate.random() < _CHURN:
            _disturb(arena, source, fate)
        for pick in arena.admit(START, 1):
            weights = {name: line.spec.weight for name, line in arena.lines.items() if line.waiting}
            weights.setdefault(pick.queue, arena.lines[pick.queue].spec.weight)
            yield Admission(pick.queue, pick.demand[GPU], weights)
            source.fill(arena, pick.queue, 1)


def _disturb(arena: Production, source: "_Source", fate: random.Random) -> None:
    """Empty, fill or reweigh one queue at random. The last queue with jobs keeps its jobs."""
    queue = fate.choice(list(arena.lines))
    line = arena.lines[queue]
    busy = sum(bool(other.waiting) for other in arena.lines.values())
    if fate.random() < 0.2:
        arena.reweigh(queue, fate.randint(1, 50))
    elif not line.waiting:
        source.fill(arena, queue, _BACKLOG)
    elif busy > 1:
        for waiting in list(line.waiting):
            arena.withdraw(waiting.entry)


class _Source:
    """A source of jobs of mixed size, submitted one per second."""

    def __init__(self, seed: int) -> None:
        self._sizes = random.Random(seed)
        self._numbers = count()

    def fill(self, arena: Production, queue: str, jobs: int) -> None:
        """Add waiting jobs to a queue."""
        for _ in range(jobs):
            arena.put(job(queue, next(self._numbers), self._sizes.choice(SIZES)))


def job(queue: str, number: int, gpus: int) -> Entry:
    """Return a job that requests GPUs."""
    return entry(queue, number, START + number, {GPU: gpus})


def large_job(rules: PickRules) -> Figures:
    """Return how long a large job waits for a whole pool, how many small jobs go before a job that waits for its
    queue's whole quota, and the bounds.

    The pool and the quota have 64 GPUs each. Small jobs arrive without end, and one ends per second. The weights are
    equal, so the large job has its turn after one small job at the latest. The patience of the large job is then 30
    seconds, and a small job runs for 64 seconds at most.
    """
    waited, _ = _pass(QueueSpec(name="large"), "small", {GPU: 64}, rules)
    _, within = _pass(QueueSpec(name="small", quota={GPU: 64}), "small", None, rules)
    return {
        "across_queues_waited_s": waited,
        "across_queues_bound_s": 1 + rules.least_patience + 64,
        "within_queue_overtaken": within,
        "within_queue_bound": 2 * 64,
    }


def _pass(spec: QueueSpec, small: str, pool: Mapping[str, int] | None, rules: PickRules) -> tuple[int, int]:
    """Return after how many seconds a large job is admitted, and how many small jobs are admitted before the large
    one."""
    specs = [spec] if spec.name == small else [spec, QueueSpec(name=small)]
    arena = Production(specs, pool, rules)
    for number in range(1_000):
        arena.put(job(small, number, 1))
    running = list(arena.admit(START, 64))
    large = job(spec.name, -1, 64)
    arena.put(large)
    second = overtakers = 0
    for second in count(1):
        arena.release(running.pop(0))
        admitted = arena.admit(START + second, 64)
        if large in admitted:
            break
        running += admitted
        overtakers += len(admitted)
    return second, overtakers


def _arena(weights: Mapping[str, int], pool: int) -> Production:
    specs = [QueueSpec(name=name, weight=weight) for name, weight in weights.items()]
    return Production(specs, {GPU: pool} if pool else None, PickRules(cost=GPU))
