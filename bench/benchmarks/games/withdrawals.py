"""Measures how much of a pool is kept from other queues by jobs that need all of it: by jobs that are withdrawn when
the picker has reserved the pool for them, by jobs that take all of a resource that costs little, and by two queues
that play together.

One rule: pure. The plays are fixed by a seed, under a clock that only the game moves.

Idle parts of the pool count as the player's, because the other queues always have jobs of one GPU. A step is a second.
"""

import heapq
import math
import random
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count

from bench.report import Figures
from bench.support.arena import GPU, START, Production, entry
from crds.keys import JobKey
from crds.resources import amounts
from crds.resources.amounts import Amounts
from queues.rules import DOMINANT, PickRules
from queues.values import Entry, QueueSpec

POOL = 64
PLAYER = "player"
PARTNER = "partner"
"""The queue that plays together with the player: its small jobs keep the player's job from its room."""
OTHERS = ("other-a", "other-b", "other-c", "other-d", "other-e")
_LONGEST = 150
"""The longest run time of the other queues' jobs, in seconds; the shortest is a third of it."""
_SHORT = 15
"""The same where two queues play together, so that the picker reserves the pool many times."""
_SOON = 4
"""The number of busy GPUs at which a job as large as the pool is about to start."""


@dataclass(frozen=True, slots=True)
class Shape:
    """A pool, the amount that a job of the player takes of the pool, and the amount of a job of another queue."""

    pool: Amounts
    large: Amounts
    small: Amounts
    cost: str = amounts.JOBS
    """The cost by which a job of the player is cheap."""

    def part(self, demand: Amounts) -> float:
        """Return the largest part of the pool that a job takes."""
        return max(demand.get(name, 0) / amount for name, amount in self.pool.items())


GPUS = Shape({GPU: POOL}, {GPU: POOL}, {GPU: 1})
SHAPES = {
    "all GPUs": GPUS,
    "640 pods without requests": Shape({GPU: POOL, amounts.PODS: 640}, {amounts.PODS: 640}, {GPU: 1, amounts.PODS: 1}),
    "all CPUs, no GPU": Shape({GPU: POOL, "cpu": 64_000}, {"cpu": 64_000}, {GPU: 1, "cpu": 1_000}, cost=GPU),
}


@dataclass(slots=True)
class Table:
    """A pool and its jobs, as the player sees them."""

    arena: Production
    chance: random.Random
    shape: Shape = GPUS
    longest: int = _LONGEST
    partner_seconds: float = math.inf
    """The run time of the partner's jobs, in seconds."""
    now: float = START
    idle: float = 0.0
    used: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    started: set[JobKey] = field(default_factory=set)
    _ends: list[tuple[float, JobKey, Entry]] = field(default_factory=list)
    _numbers: Iterator[int] = field(default_factory=count)

    @property
    def free(self) -> int:
        """The number of GPUs that no job uses now."""
        return POOL - self.arena.used.get(GPU, 0)

    def job(self, takes: Amounts, queue: str = PLAYER, priority: int = 0) -> Entry:
        """Return a new job."""
        return entry(queue, next(self._numbers), self.now, takes, priority=priority)

    def runs(self, job: Entry) -> bool:
        """Return whether a job has room."""
        return any(key == job.key for _, key, _ in self._ends)

    def second(self) -> None:
        """Let jobs end, arrive and start; then count used and idle GPUs for one second. A job that keeps a GPU from
        jobs of the other queues counts as using the GPU."""
        self.now += 1
        while self._ends and self._ends[0][0] <= self.now:
            self.arena.release(heapq.heappop(self._ends)[2])
        while True:
            for name in OTHERS:
                for _ in range(len(self.arena.lines[name].waiting), POOL):
                    self.arena.put(self.job(self.shape.small, name))
            admitted = self.arena.admit(self.now, POOL)
            if not admitted:
                break
            for job in admitted:
                self.started.add(job.key)
                lasts = self.chance.randint(self.longest // 3, self.longest)
                end = self.now + (self.partner_seconds if job.queue == PARTNER else lasts)
                heapq.heappush(self._ends, (end, job.key, job))
        free = float(POOL)
        for _, _, job in self._ends:
            taken = POOL * self.shape.part(job.demand)
            self.used[job.queue] += taken
            free -= taken
        self.idle += free


Play = Callable[[Table], Iterator[None]]
"""The player's moves: one before each second."""


def withdraw(table: Table) -> Iterator[None]:
    """Withdraw a job as large as the pool just before it starts, and submit another job."""
    while True:
        job = table.job({GPU: POOL})
        table.arena.put(job)
        while table.free < POOL - _SOON and job.key not in table.started:
            yield
        if job.key not in table.started:
            table.arena.withdraw(job)
        yield


def shrink(table: Table) -> Iterator[None]:
    """Change the job's demand by one GPU just before it starts."""
    gpus = POOL
    job = table.job({GPU: gpus})
    while True:
        table.arena.put(job)
        while table.free < POOL - _SOON and job.key not in table.started:
            yield
        if job.key in table.started:
            job = table.job({GPU: POOL})
            continue
        table.arena.withdraw(job)
        gpus = 2 * POOL - 1 - gpus
        job = Entry(key=job.key, queue=PLAYER, submitted=job.submitted, demand={amounts.JOBS: 1, GPU: gpus})
        yield


def displace(table: Table) -> Iterator[None]:
    """Submit a more urgent job as large as the pool just before the player's last job starts, and withdraw the last
    job.
    """
    last: Entry | None = None
    for priority in count():
        job = table.job({GPU: POOL}, priority=priority)
        table.arena.put(job)
        if last is not None:
            table.arena.withdraw(last)
        while table.free < POOL - _SOON and job.key not in table.started:
            yield
        last = None if job.key in table.started else job
        yield


def start(table: Table) -> Iterator[None]:
    """Let every job start: GPUs that are idle while the pool is reserved add to the share."""
    while True:
        job = table.job(table.shape.large)
        table.arena.put(job)
        while job.key not in table.started:
            yield
        yield


def hinder(table: Table) -> Iterator[None]:
    """Let a small job of the partner run whenever none does, and wait with a job as large as the pool."""
    small = large = None
    while True:
        if small is None or (small.key in table.started and not table.runs(small)):
            small = table.job({GPU: 1}, PARTNER)
            table.arena.put(small)
        if large is None or large.key in table.started:
            large = table.job({GPU: POOL})
            table.arena.put(large)
        yield


def hinder_anew(table: Table) -> Iterator[None]:
    """Do the same, and replace the large job by a new one every minute."""
    small = table.job({GPU: 1}, PARTNER)
    table.arena.put(small)
    while True:
        large = table.job({GPU: POOL})
        table.arena.put(large)
        for _ in range(60):
            yield
        if large.key not in table.started:
            table.arena.withdraw(large)


GAMES: Mapping[str, Play] = {play.__name__: play for play in (withdraw, shrink, displace)}
TOGETHER: Mapping[str, tuple[Play, float]] = {
    "small job without end": (hinder, math.inf),
    "small jobs of 100 others": (hinder, 1_000.0),
    "small jobs of 10 others": (hinder, 100.0),
    "large job replaced": (hinder_anew, math.inf),
}
"""How the two queues play, and for how long a small job runs, in seconds. Jobs of the others run for 10 on average."""


def run(seconds: int, seed: int) -> Figures:
    """Play every game for a number of seconds.

    Return the largest sum of idle and used GPUs of the player in any game, as a part of its fair share; the same for
    each shape of jobs, with the default cost and with the cost by which they are cheap; and the most that two queues
    that play together idle, as a part of the share of both.
    """
    played = {name: measure(play, seconds, seed) for name, play in GAMES.items()}
    share = 1 / (1 + len(OTHERS))
    worst = max(figures["idle"] + figures["player"] for figures in played.values())
    played["start"] = measure(start, seconds, seed)
    shapes = {
        name: {cost: measure(start, seconds, seed, shape, cost) for cost in (DOMINANT, shape.cost)}
        for name, shape in SHAPES.items()
    }
    together = {name: measure_together(play, lasts, seconds, seed) for name, (play, lasts) in TOGETHER.items()}
    both = 2 / (2 + len(OTHERS))
    return {
        "worst_kept_and_used_of_share": worst / share,
        "withdrawals": played,
        "shapes": shapes,
        "worst_idle_together_of_share": max(figures["idle"] for figures in together.values()) / both,
        "together": together,
    }


def measure(play: Play, seconds: int, seed: int, shape: Shape = GPUS, cost: str = GPU) -> dict[str, float]:
    """Play one game; return which parts of the pool were idle, used by the player, and used by the others."""
    specs = [QueueSpec(name=name) for name in (PLAYER, *OTHERS)]
    table = Table(Production(specs, shape.pool, PickRules(cost=cost)), random.Random(seed), shape)
    return _parts(table, play, seconds)


def measure_together(play: Play, lasts: float, seconds: int, seed: int) -> dict[str, float]:
    """Play one game of two queues; `lasts` is the run time of the partner's jobs."""
    specs = [QueueSpec(name=name) for name in (PLAYER, PARTNER, *OTHERS)]
    arena = Production(specs, GPUS.pool, PickRules(cost=GPU))
    table = Table(arena, random.Random(seed), longest=_SHORT, partner_seconds=lasts)
    return _parts(table, play, seconds) | {"partner": table.used[PARTNER] / (POOL * seconds)}


def _parts(table: Table, play: Play, seconds: int) -> dict[str, float]:
    moves = play(table)
    for _ in range(seconds):
        next(moves)
        table.second()
    whole = POOL * seconds
    others = sum(table.used[name] for name in OTHERS)
    return {"idle": table.idle / whole, "player": table.used[PLAYER] / whole, "others": others / whole}
