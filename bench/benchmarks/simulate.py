"""Simulates the production picker, with quotas and gangs, under a virtual clock, and compares it with other policies.

One rule: no figure depends on the clock of this machine. The same jobs give the same figures everywhere.

A job is admitted with all of its pods or not at all. The job occupies the pool until its run time is over, and it waits
only for the pool. The pool is one number per resource; how pods fit on single nodes is not simulated. The other
policies are FIFO and plain weighted round robin.
"""

import heapq
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bench.errors import BenchError
from bench.options import FILE, option
from bench.report import Figures
from bench.support import panels, scenarios
from bench.support.arena import GPU, Arena, Fifo, Production, WeightedRoundRobin
from bench.support.panels import PANELS, Panel
from bench.support.scenarios import Scenario
from crds.resources import amounts
from queues.rules import DOMINANT, PickRules
from queues.values import Entry

_LIMIT = 1_024
_MOST_PANELS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The options of the simulation. With neither file: queues of weights 5, 3, 1, 1 and mixed GPU jobs."""

    trace: str = option("", "a CSV file of tasks; each qos is a queue", path=FILE)
    scenario: str = option("", "a YAML file of queues, jobs and a pool", path=FILE)
    jobs: int = option(100_000, "jobs without a file")
    room: float = option(0.6, "the pool as a part of the trace's peak", above=0)
    cost: str = option(GPU, "dominant, jobs or a resource")
    """Usage is measured by the same resource, with `dominant` by GPUs."""
    against: bool = option(True, "compare with FIFO and plain round robin", flags="--against/--alone")
    seed: int = option(1, least=None)


SHORT = Options(jobs=2_000)


def run(options: Options) -> Figures:
    """Return the figures of the production picker, and the figures of other pickers under `against`. Raises BenchError
    for an invalid file.
    """
    scenario = read(options)
    rules = PickRules(cost=options.cost)
    pool, queues = scenario.pool, scenario.queues
    rivals: dict[str, Callable[[], Arena]] = {
        "fifo": lambda: Fifo(queues, pool),
        "weighted_round_robin": lambda: WeightedRoundRobin(queues, pool),
    }
    measured = GPU if options.cost == DOMINANT else options.cost
    torchq = play(Production(queues, pool, rules), scenario, measured)
    played = {name: play(make(), scenario, measured) for name, make in rivals.items()} if options.against else {}
    against = {name: simulation.figures() for name, simulation in played.items()}
    drawn = list(_panels({"torchq": torchq, **played}))
    return {"simulated": len(scenario.jobs), **torchq.figures(), "against": against, PANELS: drawn}


def _panels(played: Mapping[str, "Played"]) -> Iterator[Panel]:
    """Yield a panel per queue: the distribution of its jobs' waits with each picker."""
    queues = sorted({queue for simulation in played.values() for queue in simulation.waits})
    for queue in queues[:_MOST_PANELS]:
        lines = {
            name: panels.shares(simulation.waits[queue])
            for name, simulation in played.items()
            if simulation.waits.get(queue)
        }
        yield Panel(f"queue {queue}", "waited at most, s", "% of jobs", lines)


def read(options: Options) -> Scenario:
    """Return the scenario of the options. Raises BenchError."""
    if options.trace and options.scenario:
        raise BenchError("give a trace or a scenario, not both")
    if options.trace:
        return scenarios.trace(Path(options.trace), options.room)
    if options.scenario:
        return scenarios.from_yaml(Path(options.scenario), options.seed)
    return scenarios.mixed(options.jobs, options.seed)


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
