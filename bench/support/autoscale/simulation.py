"""The simulation of one policy: jobs come and end, elastic jobs change their size, and figures are summed up.

One rule: the simulation goes from one event to the next. Between two events nothing changes but the time.
"""

import heapq
import statistics
from collections.abc import Callable
from functools import partial

from bench.report import Figures
from bench.support.arena import GPU
from bench.support.autoscale import policies
from bench.support.autoscale.policies import ElasticArena, Policy
from bench.support.autoscale.scenario import WANTED
from bench.support.autoscale.trainer import (
    GRACE_SECONDS,
    PATIENCE,
    REST_SECONDS,
    START_SECONDS,
    STOP_SECONDS,
    Trainer,
)
from bench.support.scenarios import Job, Scenario
from crds.keys import JobKey
from queues.resizing.values import ElasticJob, Resize, digest
from queues.rules import PickRules
from queues.values import Entry, Pick

_LIMIT = 1_024


class Simulation:
    """The state of one simulation."""

    def __init__(self, scenario: Scenario, policy: Policy, idle_seconds: float) -> None:
        self._policy = policy
        self._idle_seconds = idle_seconds
        self._arena = ElasticArena(scenario.queues, scenario.pool, PickRules(cost=GPU))
        self._jobs = scenario.jobs
        self._work = {job.entry.key: job.seconds for job in scenario.jobs}
        self._trainers: dict[JobKey, Trainer] = {}
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._wakes: set[float] = set()
        self._number = 0
        self._now = 0.0
        self.horizon = scenario.jobs[-1].entry.submitted
        self._capacity = (scenario.pool or {})[GPU]
        self._sums = {"used": 0.0, "idle": 0.0, "usable": 0.0, "hours": 0.0}
        self._usable = 0
        self._resizes = 0
        self._waits: list[float] = []
        self._ended: list[Trainer] = []

    def run(self) -> Figures:
        """Simulate until the last job was submitted and all that waited then are admitted."""
        for job in self._jobs:
            self._at(job.entry.submitted, partial(self._arrive, job))
        while self._events and (self._now < self.horizon or any(line.ranks for line in self._arena.lines.values())):
            self._pass(self._events[0][0])
            while self._events and self._events[0][0] <= self._now:
                heapq.heappop(self._events)[-1]()
            self._cycle()
        return self._figures()

    # Events

    def _at(self, moment: float, event: Callable[[], None]) -> None:
        self._number += 1
        heapq.heappush(self._events, (moment, self._number, event))

    def _wake(self, moment: float) -> None:
        """Ask the policy at the first whole second from a moment on."""
        second = float(-(-moment // 1))
        if second not in self._wakes:
            self._wakes.add(second)
            self._at(second, partial(self._wakes.discard, second))

    def _arrive(self, job: Job) -> None:
        self._arena.put(job.entry)
        self._changed()

    def _changed(self) -> None:
        if self._policy.every:
            step = self._policy.every
            self._wake((self._now // step + 1) * step)
            return
        # A second later hastened jobs are picked; after the other times, room has been idle for long enough.
        for seconds in (1.0, self._idle_seconds, PATIENCE * (START_SECONDS + STOP_SECONDS)):
            self._wake(self._now + seconds)

    def _cycle(self) -> None:
        while picks := self._arena.pick(self._now, _LIMIT):
            for pick in picks:
                self._begin(pick)
        if not self._policy.every or self._now % self._policy.every == 0:
            self._decide()
        jobs = self._values() if self._now < self.horizon and self._arena.used.get(GPU, 0) < self._capacity else []
        self._usable = policies.usable(self._arena, jobs, self._now).get(GPU, 0) if jobs else 0

    def _decide(self) -> None:
        decided = self._policy.decide(self._arena, self._values(), self._now)
        for resize in decided.resizes:
            self._resize(self._trainers[resize.key], resize)
        self._arena.keep_claims(decided.claims, self._now)
        self._arena.hasten(decided.hasten, self._now)
        if decided.resizes or decided.hasten:
            self._changed()

    def _values(self) -> list[ElasticJob]:
        return [trainer.value(self._now, self._idle_seconds) for trainer in self._trainers.values()]

    # Jobs

    def _begin(self, pick: Pick) -> None:
        """Begin with what was picked: a job, or the growth of one."""
        entry = pick.waiting.entry
        if entry.kind == "grow":
            trainer = self._trainers[entry.key]
            trainer.asks = None
            self._add(trainer, pick.size)
        elif entry.unit:
            trainer = Trainer(entry, self._work[entry.key] * WANTED, pick.size, self._now, running=pick.size)
            self._trainers[entry.key] = trainer
            self._expect_end(trainer)
            self._ask_for_rest(trainer)
        else:
            self._waits.append(self._now - entry.submitted)
            self._at(self._now + self._work[entry.key], partial(self._end, entry))
        self._changed()

    def _end(self, entry: Entry) -> None:
        self._arena.release(entry)
        self._changed()

    def _end_trainer(self, trainer: Trainer, version: int) -> None:
        if trainer.version != version or trainer.key not in self._trainers:
            return
        trainer.advance(self._now)
        del self._trainers[trainer.key]
        self._ended.append(trainer)
        self._arena.release(trainer.entry)
        self._arena.charge(trainer.entry.queue, trainer.entry.unit, trainer.entry.size - trainer.workers)
        self._withdraw(trainer)
        self._changed()

    def _expect_end(self, trainer: Trainer) -> None:
        self._at(trainer.ends_at, partial(self._end_trainer, trainer, trainer.version))

    # Changes of size

    def _resize(self, trainer: Trainer, resize: Resize) -> None:
        self._resizes += 1
        trainer.resting_until = self._now + REST_SECONDS
        self._wake(trainer.resting_until)
        change = resize.workers - trainer.workers
        if change > 0:
            trainer.idle += change
            self._arena.charge(trainer.entry.queue, trainer.entry.unit, change)
            self._add(trainer, change, counted=True)
            return
        trainer.leaving, trainer.leaving_for = -change, digest(resize.for_key) if resize.for_key is not None else None
        self._withdraw(trainer)
        trainer.run(resize.workers, self._now)
        self._expect_end(trainer)
        self._at(self._now + GRACE_SECONDS, partial(self._leave, trainer))

    def _leave(self, trainer: Trainer) -> None:
        """Free the room of the workers that were leaving."""
        if trainer.key in self._trainers:
            gone, trainer.leaving, trainer.leaving_for = trainer.leaving, 0, None
            trainer.workers -= gone
            trainer.idle = max(0, trainer.idle - gone)
            self._arena.charge(trainer.entry.queue, trainer.entry.unit, -gone)
            self._ask_for_rest(trainer)
            self._changed()

    def _add(self, trainer: Trainer, workers: int, *, counted: bool = False) -> None:
        """Let workers start that are charged already."""
        self._resizes += not counted
        trainer.workers += workers
        trainer.ready_at = self._now + START_SECONDS
        self._at(trainer.ready_at, partial(self._join, trainer, workers))

    def _join(self, trainer: Trainer, workers: int) -> None:
        """Let workers that have started train with the other workers."""
        if trainer.key in self._trainers:
            trainer.run(trainer.running + workers, self._now)
            trainer.has_grown = True
            self._expect_end(trainer)
            self._ask_for_rest(trainer)
            self._changed()

    def _ask_for_rest(self, trainer: Trainer) -> None:
        """Let a job wait for the further workers that its owner wants."""
        missing = WANTED - trainer.workers
        if missing > 0 and trainer.asks is None and self._policy.grows_to_wish:
            trainer.growths += 1
            entry, unit = trainer.entry, trainer.entry.unit
            trainer.asks = Entry(
                key=entry.key,
                queue=entry.queue,
                kind="grow",
                submitted=self._now,
                demand=unit,
                size=1,
                unit=unit,
                most=missing - 1,
                grown=trainer.growths,
            )
            self._arena.put(trainer.asks)

    def _withdraw(self, trainer: Trainer) -> None:
        if trainer.asks is not None:
            self._arena.withdraw(trainer.asks)
            trainer.asks = None

    # Figures

    def _pass(self, moment: float) -> None:
        """Go to a moment until which nothing changes."""
        elapsed = min(moment, self.horizon) - self._now
        if elapsed > 0:
            used = self._arena.used.get(GPU, 0)
            self._sums["used"] += elapsed * used
            self._sums["idle"] += elapsed * (self._capacity - used)
            self._sums["usable"] += elapsed * self._usable
            self._sums["hours"] += elapsed * len(self._trainers) / 3600
        self._now = moment

    def _figures(self) -> Figures:
        trainers = [*self._trainers.values(), *self._ended]
        trained, lost = (sum(getattr(each, name) for each in trainers) for name in ("trained", "lost"))
        waits = sorted(self._waits)
        return {
            "utilisation_percent": 100 * self._sums["used"] / (self._capacity * self.horizon),
            "idle_usable_percent": 100 * self._sums["usable"] / self._sums["idle"] if self._sums["idle"] else 0.0,
            "rigid_wait_p50_s": waits[len(waits) // 2],
            "rigid_wait_p99_s": waits[len(waits) * 99 // 100],
            "rigid_wait_mean_s": statistics.fmean(waits),
            "resizes_per_job_hour": self._resizes / self._sums["hours"],
            "work_lost_percent": 100 * lost / (trained + lost) if trained else 0.0,
            "elastic_trained_worker_hours": trained / 3600,
            "rigid_jobs": len(waits),
            "elastic_jobs": len(trainers),
        }
