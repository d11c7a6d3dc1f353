"""Simulates the production picker, with quotas and gangs, under a virtual clock, and compares it with other policies.

One rule: no figure depends on the clock of this machine. The same jobs give the same figures everywhere.

A job is admitted with all of its pods or not at all. The job occupies the pool until its run time is over, and it waits
only for the pool. The pool is one number per resource, and the other policies are FIFO and plain weighted round robin.
With a file of nodes, pods have to fit on single nodes (`bench.support.simulated.on_nodes`).
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from bench.errors import BenchError
from bench.options import FILE, option
from bench.report import Figures
from bench.support import panels, scenarios
from bench.support.arena import GPU, Arena, Fifo, Production, WeightedRoundRobin
from bench.support.panels import PANELS, Panel
from bench.support.scenarios import Scenario
from bench.support.simulated import on_nodes
from bench.support.simulated.played import Played, play
from queues.rules import DOMINANT, PickRules

_MOST_PANELS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The options of the simulation. With neither file: queues of weights 5, 3, 1, 1 and mixed GPU jobs."""

    trace: str = option("", "a CSV file of tasks; each qos is a queue", path=FILE)
    scenario: str = option("", "a YAML file of queues, jobs and a pool", path=FILE)
    jobs: int = option(100_000, "jobs without a file")
    nodes: str = option(
        "",
        "a CSV file of nodes: the tasks of the trace, or of the list of pods beside it, are placed on them",
        path=FILE,
    )
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
    options = _with_trace(options)
    scenario = read(options)
    rules = PickRules(cost=options.cost)
    if options.nodes:
        figures = on_nodes.run(scenario, scenarios.nodes(Path(options.nodes)), rules, options.seed)
        return {"trace": options.trace, **figures}
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


def _panels(played: Mapping[str, Played]) -> Iterator[Panel]:
    """Yield a panel per queue: the distribution of its jobs' waits with each picker."""
    queues = sorted({queue for simulation in played.values() for queue in simulation.waits})
    for queue in queues[:_MOST_PANELS]:
        lines = {
            name: panels.shares(simulation.waits[queue])
            for name, simulation in played.items()
            if simulation.waits.get(queue)
        }
        yield Panel(f"queue {queue}", "waited at most, s", "% of jobs", lines)


def _with_trace(options: Options) -> Options:
    """Return the options with the trace that is played on nodes. Raises BenchError."""
    if options.nodes and options.scenario:
        raise BenchError("--nodes goes with a trace, not with a scenario")
    if options.nodes and not options.trace:
        return replace(options, trace=str(scenarios.pods_beside(Path(options.nodes))))
    return options


def read(options: Options) -> Scenario:
    """Return the scenario of the options. Raises BenchError."""
    if options.trace and options.scenario:
        raise BenchError("give a trace or a scenario, not both")
    if options.trace:
        return scenarios.trace(Path(options.trace), options.room)
    if options.scenario:
        return scenarios.from_yaml(Path(options.scenario), options.seed)
    return scenarios.mixed(options.jobs, options.seed)
