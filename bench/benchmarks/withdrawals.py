"""Measures how much of a pool stays idle if a queue withdraws jobs for which the picker reserves the pool.

One rule: pure. The plays are fixed by a seed, under a clock that only the game moves.

Idle parts of the pool count as the player's, because the other queues always have jobs of one GPU. A step is a second.
"""

import heapq
import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count

from bench.report import Figures
from bench.support.arena import Production
from crds.keys import JobKey
from crds.resources import amounts
from queues.rules import PickRules
from queues.values import Entry, QueueSpec

GPU = "nvidia.com/gpu"
START = 1_700_000_000.0
POOL = 64
PLAYER = "player"
OTHERS = ("other-a", "other-b", "other-c", "other-d", "other-e")
_LONGEST = 150
"""The longest run time of the other queues' jobs, in seconds; the shortest is a third of it."""
_SOON = 4
"""The number of busy GPUs at which a job as large as the pool is about to start."""


@dataclass(slots=True)
class Table:
    """A pool and its jobs, as the player sees them."""

    arena: Production
    chance: random.Random
    now: float = START
    idle: int = 0
    used: Counter[str] = field(default_factory=Counter)
    started: set[JobKey] = field(default_factory=set)
    _ends: list[tuple[float, JobKey, Entry]] = field(default_factory=list)
    _numbers: Iterator[int] = field(default_factory=count)

    @property
    def free(self) -> int:
        """The number of GPUs that no job uses now."""
        return POOL - self.arena.used.get(GPU, 0)

    def job(self, queue: str, gpus: int, priority: int = 0) -> Entry:
        """Return a new job."""
        number = next(self._numbers)
        key = JobKey(queue, f"job-{number:07}", f"uid-{number}")
        demand = {amounts.JOBS: 1, GPU: gpus}
        return Entry(key=key, queue=queue, submitted=self.now, priority=priority, demand=demand)

    def second(self) -> None:
        """Let jobs end, arrive and start; then count used and idle GPUs for one second."""
        self.now += 1
        while self._ends and self._ends[0][0] <= self.now:
            self.arena.release(heapq.heappop(self._ends)[2])
        while True:
            for name in OTHERS:
                for _ in range(len(self.arena.lines[name].waiting), POOL):
                    self.arena.put(self.job(name, 1))
            admitted = self.arena.admit(self.now, POOL)
            if not admitted:
                break
            for entry in admitted:
                self.started.add(entry.key)
                end = self.now + self.chance.randint(_LONGEST // 3, _LONGEST)
                heapq.heappush(self._ends, (end, entry.key, entry))
        for _, _, entry in self._ends:
            self.used[entry.queue] += entry.demand[GPU]
        self.idle += self.free


Play = Callable[[Table], Iterator[None]]
"""The player's moves: one before each second."""


def withdraw(table: Table) -> Iterator[None]:
    """Withdraw a job as large as the pool just before it starts, and submit another one."""
    while True:
        job = table.job(PLAYER, POOL)
        table.arena.put(job)
        while table.free < POOL - _SOON and job.key not in table.started:
            yield
        if job.key not in table.started:
            table.arena.withdraw(job)
        yield


def shrink(table: Table) -> Iterator[None]:
    """Change the job's demand by one GPU just before it starts."""
    gpus = POOL
    job = table.job(PLAYER, gpus)
    while True:
        table.arena.put(job)
        while table.free < POOL - _SOON and job.key not in table.started:
            yield
        if job.key in table.started:
            job = table.job(PLAYER, POOL)
            continue
        table.arena.withdraw(job)
        gpus = 2 * POOL - 1 - gpus
        job = Entry(key=job.key, queue=PLAYER, submitted=job.submitted, demand={amounts.JOBS: 1, GPU: gpus})
        yield


def displace(table: Table) -> Iterator[None]:
    """Submit a more urgent job as large as the pool just before the last one starts, and withdraw the last one."""
    last: Entry | None = None
    for priority in count():
        job = table.job(PLAYER, POOL, priority)
        table.arena.put(job)
        if last is not None:
            table.arena.withdraw(last)
        while table.free < POOL - _SOON and job.key not in table.started:
            yield
        last = None if job.key in table.started else job
        yield


def start(table: Table) -> Iterator[None]:
    """Let every job start, for comparison: GPUs that are idle while the pool is reserved add to the share."""
    while True:
        job = table.job(PLAYER, POOL)
        table.arena.put(job)
        while job.key not in table.started:
            yield
        yield


GAMES: Mapping[str, Play] = {play.__name__: play for play in (withdraw, shrink, displace)}


def run(seconds: int, seed: int) -> Figures:
    """Play every game for a number of seconds.

    Return the largest sum of idle and used GPUs of the player in any game, as a part of its fair share.
    """
    played = {name: measure(play, seconds, seed) for name, play in GAMES.items()}
    share = 1 / (1 + len(OTHERS))
    worst = max(figures["idle"] + figures["player"] for figures in played.values())
    played["start"] = measure(start, seconds, seed)
    return {"worst_kept_and_used_of_share": worst / share, "withdrawals": played}


def measure(play: Play, seconds: int, seed: int) -> dict[str, float]:
    """Play one game; return which parts of the pool were idle, used by the player, and used by the others."""
    specs = [QueueSpec(name=name) for name in (PLAYER, *OTHERS)]
    table = Table(Production(specs, {GPU: POOL}, PickRules(cost=GPU)), random.Random(seed))
    moves = play(table)
    for _ in range(seconds):
        next(moves)
        table.second()
    whole = POOL * seconds
    others = sum(table.used[name] for name in OTHERS)
    return {"idle": table.idle / whole, "player": table.used[PLAYER] / whole, "others": others / whole}
