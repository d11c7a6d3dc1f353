"""Games of elastic jobs: a queue whose thousand jobs ask for growths and take them back, change their sizes without
end, or never end the workers of idle growth.

One rule: pure. The plays come from a seed, the coordinator's own functions decide what is picked, lowered and refunded,
and only the game moves the clock. A step is a second.

Each job of the player has one worker that stays and is not counted. Three other queues always have jobs of one GPU.
"""

import heapq
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import count

from bench.benchmarks.games.orders import Fluid
from bench.report import Figures
from bench.support.arena import GPU, START, entry
from bench.support.autoscale.policies import ElasticArena, On
from coordinator.routing import held_charges
from coordinator.settings import Settings
from crds.keys import JobKey
from crds.resources import amounts
from crds.torchjob.status import Admission
from queues.resizing.values import ElasticJob, Resize, digest
from queues.rules import PickRules
from queues.values import Entry, Pick, QueueSpec, Reservation

POOL = 64
JOBS = 1_000
LARGE = 9
"""The most workers of a job of the player, and so the largest growth is one worker less."""
PLAYER = "player"
OTHERS = ("other-a", "other-b", "other-c")
IDLE_GRACE: float = Settings.model_fields["idle_grace"].default
_HEADS: int = Settings.model_fields["heads"].default
_UNIT = {GPU: 1}
_RUNS = (10, 30)
"""For how many seconds jobs of the others run, and an honest growth is kept."""
_PHASE, _PAUSE = 300, 120
"""Every so many seconds, the other queues submit no jobs for a while: within half of it the pool is idle."""
_WARM_UP = 60
"""The player joins when the others have used the whole pool for some seconds."""


class _Arena(ElasticArena):
    """As many waiting jobs of each queue are known as the coordinator reads of a queue that lacks room."""

    heads = _HEADS


@dataclass(slots=True)
class Job:
    """An admitted job of the player: what the store holds for it, what its status says, and what its owner wants."""

    held: Reservation
    admission: Admission
    wish: int = 1
    asks: Entry | None = None
    """The growth that waits in the queue."""
    until: float = 0.0
    """When the play does the next thing with it."""
    gives: Resize | None = None
    """The resize that takes its idle growth back."""

    def value(self) -> ElasticJob:
        """Return the job as a plan sees it."""
        size, gives = self.held.size, self.gives
        return ElasticJob(
            key=self.held.key,
            queue=PLAYER,
            workers=size,
            least=1,
            wanted=1,
            most=LARGE,
            unit=_UNIT,
            idle=self.held.idle,
            autoscale=True,
            busy="Scaling" if gives else "",
            idle_seconds=30.0,
            leaving=size - gives.workers if gives else 0,
            leaving_for=digest(gives.for_key) if gives and gives.for_key else None,
        )


@dataclass(slots=True)
class Table:
    """The pool and its jobs, and the ledger of what was picked and held."""

    arena: ElasticArena
    chance: random.Random
    now: float = START
    pauses: bool = False
    """Whether the other queues pause now and then."""
    jobs: dict[JobKey, Job] = field(default_factory=dict)
    fluid: Fluid = field(default_factory=Fluid)
    policy: On = field(default_factory=On)
    gain: float = 0.0
    largest: int = 1
    held: int = 0
    """GPUs times seconds of the player's growths and of idle room, while jobs of the others wait."""
    waits: int = 0
    """For how many seconds jobs of the others have waited now while the player had idle growth."""
    longest_wait: int = 0
    _ends: list[tuple[float, JobKey, Entry]] = field(default_factory=list)
    _numbers: Iterator[int] = field(default_factory=count)

    def new(self) -> None:
        """Add an admitted job of one worker to the player's queue."""
        key = entry(PLAYER, next(self._numbers), START, {}).key
        held = Reservation(key=key, queue=PLAYER, attempt=1, epoch=1, charge=_UNIT, size=1)
        admission = Admission(queue=PLAYER, attempt=1, epoch=1, charge=_UNIT, workers=1, grown=0)
        self.jobs[key] = Job(held, admission)

    def ask(self, job: Job, wish: int, *, whole: bool = False) -> None:
        """Let the owner of a job want this number of workers: a growth waits once nothing of the last change is
        left."""
        job.wish = wish
        if job.asks is not None:
            self.arena.withdraw(job.asks)
            job.asks = None
        missing = wish - job.held.size
        if missing <= 0 or job.held.charge != job.admission.charge:
            return
        step = missing if whole else 1
        number = next(self._numbers)
        job.asks = Entry(
            key=job.held.key,
            queue=PLAYER,
            kind="grow",
            submitted=START + number,
            demand={GPU: step},
            size=step,
            unit={} if whole else _UNIT,
            most=missing - step,
            step=step,
            grown=job.held.grown,
        )
        self.arena.put(job.asks)

    def write(self, job: Job, *, declined: bool = False) -> None:
        """Take the worker's step: write a growth as far as it is wanted, or a smaller size
        (`reconcilers.plan.elastic.change_steps.take_up`)."""
        held, admission = job.held, job.admission
        size = 1 if declined else min(held.size, job.wish)
        refunded = held.grown if declined and job.wish >= held.size else 0
        if held_charges.is_unwritten_growth(admission, held) or size < held.size:
            change = {"workers": size, "charge": {GPU: size}, "grown": held.grown, "declined": refunded}
            job.admission = admission.model_copy(update=change)

    def lower(self, job: Job) -> None:
        """Take the leader's step: free what the status does not need (`coordinator.leader.charge_lowering`)."""
        held, admission = job.held, job.admission
        surplus = held_charges.find_surplus(admission, held)
        if surplus is None:
            return
        refund = held_charges.freed_payment(held, surplus)
        if refund and admission.grown and admission.declined == admission.grown:
            self.arena.refund(PLAYER, refund, self.now)
            self.fluid.see(self._contending(), PLAYER, -refund)
        self._free(job, held.size - surplus.size)

    def second(self) -> None:
        """Let jobs of the others end and arrive, make the picks and the plan, then count one second."""
        self.now += 1
        while self._ends and self._ends[0][0] <= self.now:
            self.arena.release(heapq.heappop(self._ends)[2])
        if not self.pauses or (self.now - START - _WARM_UP) % _PHASE >= _PAUSE:
            for name in OTHERS:
                for _ in range(len(self.arena.lines[name].waiting), POOL):
                    self.arena.put(entry(name, next(self._numbers), self.now, _UNIT))
        while True:
            contending = self._contending()
            picks = self.arena.pick(self.now, 1)
            if not picks:
                break
            self._see(contending, picks[0])
        if any(self.arena.lines[name].waiting for name in OTHERS):
            self.held += POOL - self.arena.used.get(GPU, 0) + sum(job.held.size - 1 for job in self.jobs.values())
            self.waits = self.waits + 1 if any(job.held.idle for job in self.jobs.values()) else 0
            self.longest_wait = max(self.longest_wait, self.waits)

    def plan(self) -> None:
        """Grow into idle room, and let workers go that had `idle_grace` to go: no checkpoint comes before."""
        for job in self.jobs.values():
            if job.gives and self.now >= job.until:
                self._free(job, job.held.size - job.gives.workers)
                job.gives = None
        decided = self.policy.decide(self.arena, [job.value() for job in self.jobs.values()], self.now)
        for resize in decided.resizes:
            job = self.jobs[resize.key]
            change = resize.workers - job.held.size
            if change < 0:
                job.gives, job.until = resize, self.now + IDLE_GRACE
                continue
            size, idle = job.held.size + change, job.held.idle + change
            job.held = replace(job.held, size=size, idle=idle, charge={GPU: size}, paid=0, gained=0)
            self.arena.charge(PLAYER, _UNIT, change)
        self.arena.keep_claims(decided.claims, self.now)
        self.arena.hasten(decided.hasten, self.now)

    def _free(self, job: Job, workers: int) -> None:
        """Lower a charge as the store does (`QueueStore.lower`)."""
        size, idle = job.held.size - workers, max(0, job.held.idle - workers)
        job.held = replace(job.held, size=size, idle=idle, charge={GPU: size}, paid=0, gained=0)
        self.arena.charge(PLAYER, _UNIT, -workers)

    def _contending(self) -> Mapping[str, int]:
        return {name: line.spec.weight for name, line in self.arena.lines.items() if line.waiting}

    def _see(self, contending: Mapping[str, int], pick: Pick) -> None:
        picked = pick.waiting.entry
        self.largest = max(self.largest, pick.cost)
        self.fluid.see(contending, picked.queue, pick.cost)
        self.gain = max(self.gain, self.fluid.ahead.get(PLAYER, 0.0))
        if picked.queue != PLAYER:
            heapq.heappush(self._ends, (self.now + self.chance.randint(*_RUNS), picked.key, picked))
            return
        job = self.jobs[picked.key]
        held, size = job.held, job.held.size + pick.size
        charge = amounts.add(held.charge, pick.charge)
        grown = held.grown + 1
        job.held = replace(held, charge=charge, size=size, grown=grown, paid=pick.cost, gained=pick.size)
        job.asks = None


Play = Callable[[Table], Iterator[None]]
"""The player's moves: one before each second."""


def keep(table: Table) -> Iterator[None]:
    """Keep each growth for as long as a job of the others runs: an honest queue."""
    yield from _each(table, written=True, keeps=True)


def take_back(table: Table) -> Iterator[None]:
    """Take each growth back before a worker has written it."""
    yield from _each(table, written=False)


def shrink(table: Table) -> Iterator[None]:
    """Give each growth back when a worker has written it."""
    yield from _each(table, written=True)


def decline(table: Table) -> Iterator[None]:
    """Let each growth be declined although its owner wants it, as at the end of a job: it is refunded."""
    yield from _each(table, written=False, declined=True)


def whole(table: Table) -> Iterator[None]:
    """Ask for large growths as a whole, for which the pool keeps room, and take each back before it is written."""
    yield from _each(table, written=False, whole=True)


def flap(table: Table) -> Iterator[None]:
    """Change what a tenth of the owners want at every second, whatever has become of the last change. So a growth is
    kept for 20 seconds on average, as a job of the others."""
    while True:
        for job in table.chance.sample(list(table.jobs.values()), JOBS // 10):
            table.ask(job, table.chance.choice((1, LARGE)), whole=table.chance.random() < 0.2)
        for job in _touched(table):
            if table.chance.random() < 0.5:
                table.write(job)
            table.lower(job)
        yield


def never_save(table: Table) -> Iterator[None]:
    """Grow into idle room, and keep it for as long as possible when others need it."""
    table.pauses = True
    while True:
        table.plan()
        yield


PLAYS: Mapping[str, Play] = {
    play.__name__: play for play in (keep, take_back, shrink, decline, whole, flap, never_save)
}


def run(seconds: int, seed: int) -> Figures:
    """Play every game for a number of seconds, with equal weights and with five times the weight.

    Return the player's largest gain over its fluid share in any game, in largest picks; the most that its growths held
    and kept idle, as a part of its share; and the longest wait for idle growth to end."""
    played = {
        f"{name} {weight}:1": measure(play, weight, seconds, seed) for name, play in PLAYS.items() for weight in (1, 5)
    }
    return {
        "worst_growth_gain_largest_jobs": max(each.get("gain_largest_jobs", 0.0) for each in played.values()),
        "worst_growth_held_of_share": max(each.get("held_of_share", 0.0) for each in played.values()),
        "longest_wait_for_idle_growth_s": max(each.get("waited_s", 0) for each in played.values()),
        "growths": played,
    }


def measure(play: Play, weight: int, seconds: int, seed: int) -> dict[str, float]:
    """Play one game."""
    specs = [QueueSpec(name=PLAYER, weight=weight), *(QueueSpec(name=name) for name in OTHERS)]
    table = Table(_Arena(specs, {GPU: POOL}, PickRules(cost=GPU)), random.Random(seed))
    for _ in range(JOBS):
        table.new()
    moves = play(table)
    for _ in range(_WARM_UP):
        table.second()
    table.held = 0
    for _ in range(seconds):
        next(moves)
        table.second()
    if table.pauses:
        return {"waited_s": table.longest_wait}
    share = weight / (weight + len(OTHERS))
    return {
        "gain_largest_jobs": table.gain / table.largest,
        "held_of_share": table.held / (POOL * seconds) / share,
    }


def _each(
    table: Table, *, written: bool, keeps: bool = False, declined: bool = False, whole: bool = False
) -> Iterator[None]:
    """Let every job ask for a growth, and give it back when it is granted, or when it was written and kept for a
    time."""
    for job in table.jobs.values():
        table.ask(job, LARGE, whole=whole)
    while True:
        for job in _touched(table):
            if written and held_charges.is_unwritten_growth(job.admission, job.held):
                table.write(job)
                job.until = table.now + (table.chance.randint(*_RUNS) if keeps else 0)
            elif table.now >= job.until:
                job.wish = job.wish if declined else 1
                table.write(job, declined=declined)
                table.lower(job)
                table.ask(job, LARGE, whole=whole)
        yield


def _touched(table: Table) -> list[Job]:
    """Return the jobs that have a growth."""
    return [job for job in table.jobs.values() if job.held.size > 1]
