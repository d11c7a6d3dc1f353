"""Who changes the sizes of elastic jobs in a simulation: the coordinator's plan, EDL's plain loop, or no policy.

One rule: a policy returns resizes, and the simulation carries them out. The coordinator's own picker decides which jobs
are admitted and which growths are granted.
"""

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import replace

from bench.support.arena import Production
from crds.keys import JobKey
from crds.resources import amounts
from crds.resources.amounts import Amounts, increase
from queues.resizing import givers
from queues.resizing.resize_plan import plan
from queues.resizing.values import NO_IDLE_ROOM, ElasticJob, IdleRoom, Plan, Resize
from queues.values import OvertakenJob, Pick

NOTHING_TO_DO = Plan()


class ElasticArena(Production):
    """The queues, their waiting jobs and growths, and the charges."""

    def pick(self, now: float, limit: int) -> Sequence[Pick]:
        """Make up to `limit` picks, and return them in order."""
        picks = self.picks(now, limit)
        for pick in picks:
            entry = pick.waiting.entry
            self.lines[entry.queue].drop(entry)
            self.charge(entry.queue, pick.charge)
        return picks

    def charge(self, queue: str, demand: Amounts, times: int = 1) -> None:
        """Charge a queue; free it of the demand if `times` is below 0."""
        changed = amounts.scale(demand, times)
        increase(self.used, changed)
        increase(self.lines[queue].used, changed)
        self._changed.add(queue)

    def refund(self, queue: str, cost: int, now: float) -> None:
        """Give a queue back the price of what was declined, as `PickCycle.refund` does."""
        self.picker.update(self._show(self._changed, whole=False))
        self._changed = set()
        self.picker.settle(queue, -cost)
        settlement = self.picker.picks(now, 0).settlement
        if settlement is not None:
            self._keep(*settlement)

    def keep_claims(self, claims: Mapping[str, JobKey], now: float) -> None:
        """Keep an open claim for the first job of each of these queues, so that other jobs leave the room that it
        needs; drop the claims of all other queues.
        """
        for queue, record in list(self._overtaken.items()):
            if record is not None and record.claimed and claims.get(queue) != record.key:
                self._overtaken[queue] = replace(record, claimed=False)
                self._changed.add(queue)
        for queue, key in claims.items():
            record = self._record(queue, key, now)
            if not record.claimed:
                self._overtaken[queue] = replace(record, claimed=True)
                self._changed.add(queue)

    def hasten(self, jobs: Mapping[str, JobKey], now: float) -> None:
        """End the patience of the first jobs of queues."""
        for queue, key in jobs.items():
            record = self._record(queue, key, now)
            if not record.impatient:
                self._overtaken[queue] = replace(record, impatient=True)
                self._changed.add(queue)

    def _record(self, queue: str, key: JobKey, now: float) -> OvertakenJob:
        record = self._overtaken.get(queue)
        return record if record is not None and record.key == key else OvertakenJob(key=key, times=0, since=now)


class Policy:
    """Nobody is resized by itself. Jobs that began smaller than their owners ask for grow to that size."""

    grows_to_wish = True
    """Whether such a job waits for the rest of its workers."""
    every = 0.0
    """The time between two decisions; 0: with each change."""

    def decide(self, arena: ElasticArena, jobs: Sequence[ElasticJob], now: float) -> Plan:
        """Return the resizes after a round of picks."""
        del arena, jobs, now
        return NOTHING_TO_DO


class Off(Policy):
    """No autoscaling."""


class Kueue(Policy):
    """Kueue's rule: a job keeps the size with which it was admitted."""

    grows_to_wish = False


class On(Policy):
    """The coordinator's plan."""

    def __init__(self) -> None:
        self._idle_since: IdleRoom = NO_IDLE_ROOM

    def decide(self, arena: ElasticArena, jobs: Sequence[ElasticJob], now: float) -> Plan:
        """See Policy."""
        decided = plan(arena.picker, jobs, now, self._idle_since)
        self._idle_since = decided.idle_since
        return decided


class PlainLoop(Policy):
    """EDL's loop without entitlement: every 30 s it fills the free room, or, while some job waits for room, makes jobs
    smaller until the oldest job fits. The policy asks neither for which job, nor whether the workers are enough."""

    every = 30.0

    def decide(self, arena: ElasticArena, jobs: Sequence[ElasticJob], now: float) -> Plan:
        """See Policy."""
        del now
        free = [replace(job, leaving=0) for job in jobs if not job.busy]
        heads = [line.waiting[0].entry for line in arena.lines.values() if line.waiting]
        if not heads:
            return Plan(resizes=self._grow(arena, free))
        head = min(heads, key=lambda entry: (entry.submitted, entry.key))
        return Plan(resizes=self._shrink(arena, jobs, head.key, head.demand))

    def _grow(self, arena: ElasticArena, jobs: Sequence[ElasticJob]) -> tuple[Resize, ...]:
        used, sizes = dict(arena.used), {job.key: job.workers for job in jobs}
        turns = [(givers.fulfilment(job, job.workers), number) for number, job in enumerate(jobs)]
        heapq.heapify(turns)
        while turns:
            _, number = heapq.heappop(turns)
            job = jobs[number]
            if sizes[job.key] < job.most and amounts.fits(job.unit, used, arena.pool or amounts.NOTHING):
                amounts.increase(used, job.unit)
                sizes[job.key] += 1
                heapq.heappush(turns, (givers.fulfilment(job, sizes[job.key]), number))
        return tuple(Resize(job.key, sizes[job.key], "Idle") for job in jobs if sizes[job.key] > job.workers)

    def _shrink(
        self, arena: ElasticArena, jobs: Sequence[ElasticJob], key: JobKey, demand: Amounts
    ) -> tuple[Resize, ...]:
        used, sizes = dict(arena.used), {job.key: job.workers - job.leaving for job in jobs}
        for job in jobs:
            amounts.increase(used, job.unit, -job.leaving)
        free = [job for job in jobs if not job.busy]
        turns = [(-givers.fulfilment(job, job.workers), number) for number, job in enumerate(free)]
        heapq.heapify(turns)
        while turns and not amounts.fits(demand, used, arena.pool or amounts.NOTHING):
            _, number = heapq.heappop(turns)
            job = free[number]
            if sizes[job.key] > job.least:
                amounts.increase(used, job.unit, -1)
                sizes[job.key] -= 1
                heapq.heappush(turns, (-givers.fulfilment(job, sizes[job.key]), number))
        return tuple(Resize(job.key, sizes[job.key], "GiveBack", key) for job in free if sizes[job.key] < job.workers)


def usable(arena: ElasticArena, jobs: Sequence[ElasticJob], now: float) -> Mapping[str, int]:
    """Return the room that elastic jobs could use now, if they never rested and no room had to be idle for a time."""
    able = [replace(job, busy="", resting_until=0.0, idle_seconds=0.0, leaving=0) for job in jobs]
    found: dict[str, int] = {}
    by_key = {job.key: job for job in able}
    for resize in plan(arena.picker, able, now).resizes:
        job = by_key[resize.key]
        amounts.increase(found, job.unit, max(0, resize.workers - job.workers))
    return found
