"""Simulates the production picker and its places on the nodes of a trace, and compares other ways to choose nodes.

One rule: no figure depends on the clock of this machine.

The tasks of the trace come in random order, each as often as any other. Parts of a GPU count as a whole one.

1. `filled`: tasks come until they ask together for 130 % of the GPUs, and none ends. A task gets a node at once if one
   has room, else it waits for ever. It is known from the beginning which pods are typical, as in a cluster in use.
2. `played`: tasks that ask for 130 % of the GPUs come at once, and then others in even steps, at a pace that asks for
   as much. They run as long as in the trace, but at most for an hour. The production picker decides, and counts which
   pods are typical. `sums` is the picker without nodes: every task that has room in the sum of the nodes runs.
"""

import math
import random
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count

from bench.report import Figures
from bench.support.arena import GPU, Production
from bench.support.scenarios import Job, Nodes, Scenario
from bench.support.simulated.node_policies import POLICIES, TorchqPlaces, gangs
from bench.support.simulated.played import Played
from coordinator.leader.node_places import TYPICAL_SECONDS, USUAL_SECONDS
from crds.resources import amounts
from queues.pick_cycle import AGES_SECONDS
from queues.placement.gangs import Gang
from queues.placement.places import ExpectedEnd
from queues.rules import PickRules
from queues.values import Entry

LOAD = 1.3
"""What the tasks ask for, as a part of the GPUs."""
_LONGEST_SECONDS = 3_600.0
_ROUNDS = 2
"""How many times all GPUs the played tasks ask for together."""


def run(tasks: Scenario, nodes: Nodes, rules: PickRules, seed: int) -> Figures:
    """Return the figures of all ways to choose nodes."""
    capacity: dict[str, int] = {}
    for node in nodes:
        amounts.increase(capacity, node, 1)
    gpus = capacity[GPU]
    filled = {name: _fill(make(nodes, gangs()), tasks.jobs, gpus, seed) for name, make in POLICIES.items()}
    jobs = list(_arriving(tasks.jobs, gpus, seed))
    scenario = replace(tasks, jobs=jobs, pool=capacity)
    arenas = {name: OnNodes(scenario, rules, nodes, make) for name, make in POLICIES.items()}
    played = {name: _play(arena, scenario) for name, arena in arenas.items()}
    played["sums"] = _play(Production(scenario.queues, capacity, rules), scenario)
    best = filled["best_fit"]["unallocated_at_130_percent"]
    part = filled["torchq"]["unallocated_at_130_percent"] / best if best else None
    size = {"simulated": len(jobs), "nodes": len(nodes), "gpus": gpus}
    return {**size, "unallocated_of_best_fit": part, "filled": filled, "played": played}


def _drawn(tasks: Sequence[Job], gpus: float, seed: int) -> Iterator[Job]:
    """Yield tasks in random order until they ask for a number of GPUs."""
    draw = random.Random(seed)
    for number in count():
        if number % len(tasks) == 0:
            order = draw.sample(tasks, len(tasks))
        job = order[number % len(tasks)]
        key = replace(job.entry.key, name=f"{job.entry.key.name}-{number}", uid=f"uid-{number}")
        yield Job(replace(job.entry, key=key), min(job.seconds, _LONGEST_SECONDS))
        gpus -= job.entry.demand.get(GPU, 0)
        if gpus <= 0:
            return


def _arriving(tasks: Sequence[Job], gpus: int, seed: int) -> Iterator[Job]:
    """Yield tasks that ask for the load at once, and then others at a pace that does."""
    pace = (
        LOAD
        * gpus
        / statistics.fmean(task.entry.demand.get(GPU, 0) * min(task.seconds, _LONGEST_SECONDS) for task in tasks)
    )
    asked, later = 0, count()
    for job in _drawn(tasks, _ROUNDS * gpus, seed):
        at = 0.0 if asked < LOAD * gpus else next(later) / pace
        asked += job.entry.demand.get(GPU, 0)
        yield replace(job, entry=replace(job.entry, submitted=at))


def _fill(places: TorchqPlaces, tasks: Sequence[Job], gpus: int, seed: int) -> Figures:
    """Give nodes to one task after the other, of which none ends."""
    places.count_typical(_gang(places, task.entry) for task in tasks)
    asked, given, waiting, at_demand = 0, 0, 0, 0
    refusal: tuple[int, int] | None = None
    for number, job in enumerate(_drawn(tasks, LOAD * gpus, seed)):
        gang, wanted = _gang(places, job.entry), job.entry.demand.get(GPU, 0)
        if places.fits(gang):
            places.take(str(job.entry.key), gang)
            given += wanted
        else:
            waiting += 1
            refusal = refusal or (number, gpus - given)
        asked += wanted
        at_demand = at_demand if asked - wanted >= gpus else gpus - given
    until, then = refusal or (None, None)
    return {
        "until_refusal": until,
        "unallocated_then": then,
        "at_100_percent": at_demand,
        "unallocated_at_130_percent": gpus - given,
        "waiting": waiting,
    }


def _gang(places: TorchqPlaces, entry: Entry) -> Gang:
    gang = places.gang_of(str(entry.key), entry.kind, entry.demand)
    assert gang is not None
    return gang


class OnNodes(Production):
    """An arena in which a job has nodes, too."""

    patience_seconds = AGES_SECONDS

    def __init__(self, scenario: Scenario, rules: PickRules, nodes: Nodes, make: type[TorchqPlaces]) -> None:
        self._gang_of = gangs()
        self._counted = -math.inf
        self.places = make(nodes, self._gang_of, self._ends)
        super().__init__(scenario.queues, scenario.pool, rules, self.places)

    def release(self, entry: Entry) -> None:
        """See Arena."""
        super().release(entry)
        self.places.release(str(entry.key))

    def choose(self, now: float, limit: int, /) -> Sequence[Entry]:
        """See Arena."""
        if now - self._counted >= TYPICAL_SECONDS:
            self._counted = now
            waiting = (self._gang_of(each.entry.demand) for line in self.lines.values() for each in line.waiting)
            running = (Gang(job.members) for job in self.places.jobs.values())
            self.places.count_typical((*waiting, *running))
        return super().choose(now, limit)

    def _ends(self, now: float) -> Sequence[ExpectedEnd]:
        """Return when jobs are expected to end, as the leader expects jobs without deadlines to."""
        usual = sum(seconds for seconds, _ in self.holds) / len(self.holds) if self.holds else USUAL_SECONDS
        ends = sorted((max(now, since + usual), str(key)) for key, (_, since) in self.admitted.items())
        return [ExpectedEnd(*end) for end in ends]


@dataclass
class PlayedOnNodes(Played):
    """A simulation of which only the time counts in which tasks arrive."""

    wasted: float = 0.0
    """The GPUs that are not allocated while jobs wait, multiplied by seconds."""
    waited: float = 0.0
    """The seconds in which jobs wait."""

    def _pass(self, moment: float) -> None:
        if self.arrived == len(self.scenario.jobs):
            self.now = moment
            return
        elapsed = moment - self.now if self.arrived else 0.0
        super()._pass(moment)
        if any(line.ranks for line in self.arena.lines.values()):
            self.waited += elapsed
            self.wasted += elapsed * ((self.arena.pool or {})[GPU] - self.arena.used.get(GPU, 0))


def _play(arena: Production, scenario: Scenario) -> Figures:
    played = PlayedOnNodes(arena, scenario, GPU)
    while played.step():
        pass
    waits = [wait for waits in played.waits.values() for wait in waits]
    span = scenario.jobs[-1].entry.submitted - scenario.jobs[0].entry.submitted
    return {
        "mean_wait_s": statistics.fmean(waits),
        "longest_wait_s": max(waits),
        "utilisation_percent": 100 * played.used / (span * (scenario.pool or {})[GPU]),
        "unallocated_while_jobs_wait": played.wasted / played.waited if played.waited else 0.0,
        "never_admitted": len(played.seconds),
    }
