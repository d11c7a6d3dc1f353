"""One simulation under a virtual clock, from the first submission to the last end, and its figures."""

import heapq
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from bench.report import Figures
from bench.support.arena import Arena
from bench.support.scenarios import Scenario
from crds.resources import amounts
from queues.values import Entry

_LIMIT = 1_024


def play(arena: Arena, scenario: Scenario, cost: str) -> "Played":
    """Simulate all jobs, from the first submission to the last end."""
    played = Played(arena, scenario, cost)
    while played.step():
        pass
    return played


@dataclass(slots=True)
class Played:
    """The state of a simulation."""

    arena: Arena
    scenario: Scenario
    cost: str
    now: float = 0.0
    arrived: int = 0
    admitted: int = 0
    ends: list[tuple[float, int, Entry]] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)
    """The run times of jobs that have arrived and are not admitted, by uid."""
    waits: dict[str, list[float]] = field(default_factory=dict)
    used: float = 0.0
    """The usage of the counted resource, multiplied by seconds."""
    jain: float = 0.0
    contended: float = 0.0
    """The seconds in which at least two queues had waiting jobs."""

    def step(self) -> bool:
        """Go to the next time at which a job arrives, ends or may be admitted; return False if there is none."""
        jobs = self.scenario.jobs
        coming = jobs[self.arrived].entry.submitted if self.arrived < len(jobs) else None
        moments = [moment for moment in (coming, self.ends[0][0] if self.ends else None) if moment is not None]
        if not moments:
            return False
        again = self.arena.looks_again(self.now)
        self._pass(min(moments) if again is None else min(again, *moments))
        while self.ends and self.ends[0][0] <= self.now:
            self.arena.release(heapq.heappop(self.ends)[-1])
        while self.arrived < len(jobs) and jobs[self.arrived].entry.submitted <= self.now:
            job = jobs[self.arrived]
            self.seconds[job.entry.key.uid] = job.seconds
            self.arena.put(job.entry)
            self.arrived += 1
        while admitted := self.arena.admit(self.now, _LIMIT):
            self._begin(admitted)
        return True

    def _begin(self, admitted: Sequence[Entry]) -> None:
        for entry in admitted:
            self.waits.setdefault(entry.queue, []).append(self.now - entry.submitted)
            end = self.now + self.seconds.pop(entry.key.uid)
            self.admitted += 1
            heapq.heappush(self.ends, (end, self.admitted, entry))

    def _pass(self, moment: float) -> None:
        """Move the clock to a moment until which usage and waiting jobs stay the same."""
        elapsed = moment - self.now if self.arrived else 0.0
        self.now = moment
        self.used += elapsed * self.arena.used.get(self.cost, 0)
        waiting = [line for line in self.arena.lines.values() if line.ranks]
        shares = [line.used.get(self.cost, 0) / line.spec.weight for line in waiting]
        if len(shares) > 1 and any(shares):
            self.contended += elapsed
            self.jain += elapsed * jain(shares)

    def figures(self) -> Figures:
        """Return the results of the simulation."""
        all_waits = [wait for waits in self.waits.values() for wait in waits]
        makespan = self.now - self.scenario.jobs[0].entry.submitted if self.scenario.jobs else 0.0
        room = (self.arena.pool or amounts.NOTHING).get(self.cost, 0)
        return {
            "admitted": len(all_waits),
            "never_admitted": len(self.seconds),
            "makespan_s": makespan,
            "utilisation_percent": 100 * self.used / (room * makespan) if room and makespan else None,
            "jain_index": self.jain / self.contended if self.contended else None,
            "longest_wait_s": max(all_waits, default=0.0),
            "wait_s": {queue: _waits(waits) for queue, waits in sorted(self.waits.items())},
        }


def jain(parts: Sequence[float]) -> float:
    """Return Jain's index of fairness: 1 if all parts are equal, 1/n if one of n parts is everything."""
    return sum(parts) ** 2 / (len(parts) * sum(part * part for part in parts))


def _waits(waits: Sequence[float]) -> Mapping[str, float]:
    ordered = sorted(waits)
    return {
        "jobs": len(ordered),
        "mean": statistics.fmean(ordered),
        "p50": ordered[len(ordered) // 2],
        "p95": ordered[len(ordered) * 95 // 100],
        "max": ordered[-1],
    }
