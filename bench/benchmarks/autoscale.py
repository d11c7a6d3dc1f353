"""Simulates elastic jobs that grow into idle room and give it back, and compares that with three other rules.

One rule: no figure but the time of a plan depends on this machine. The same jobs give the same figures everywhere.

A third of the jobs with GPUs are elastic: their owners ask for 2 workers, and 1 to 8 can train. All queues are of one
cohort, and their quotas are the pool. An elastic job has the same work whatever its size is.
`bench.support.autoscale.trainer` has the cost of a change of size. The figures end with the last submission, because
after it the pool only becomes empty.
"""

from dataclasses import dataclass
from pathlib import Path

from bench.options import FILE, option
from bench.report import Figures
from bench.support.autoscale import large_plan, scenario
from bench.support.autoscale.policies import Kueue, Off, On, PlainLoop, Policy
from bench.support.autoscale.simulation import Simulation
from bench.support.scenarios import Scenario


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The options of the simulation."""

    trace: str = option("", "a CSV file of tasks; each qos is a queue", path=FILE)
    jobs: int = option(2_000, "jobs without a file")
    load: float = option(0.8, "of the pool, without a file", least=0.01)
    room: float = option(0.6, "the pool as a part of the trace's peak", above=0)
    idle_seconds: float = 30.0
    against: bool = option(True, "leave out Kueue's rule and EDL's plain loop", flags="--alone")
    seed: int = option(1, least=None)


SHORT = Options(jobs=200, against=False)


def run(options: Options) -> Figures:
    """Return the figures without and with autoscaling, and the figures of the other rules under `against`. Raises
    BenchError for an invalid file.
    """
    found = read(options)
    others: dict[str, Policy] = {"kueue": Kueue(), "edl_plain_loop": PlainLoop()} if options.against else {}
    return {
        "simulated": len(found.jobs),
        "off": play(found, Off(), options),
        "on": play(found, On(), options),
        "against": {name: play(found, policy, options) for name, policy in others.items()},
        **plan_times(),
    }


def read(options: Options) -> Scenario:
    """Return the scenario of the options. Raises BenchError."""
    if options.trace:
        return scenario.trace(Path(options.trace), options.room)
    return scenario.mixed(options.jobs, options.load, options.seed)


def play(found: Scenario, policy: Policy, options: Options) -> Figures:
    """Return the figures of one policy."""
    return Simulation(found, policy, options.idle_seconds).run()


def plan_times() -> Figures:
    """Return the time of a plan with 1,000 elastic jobs in 1,000 queues: in each case, and in the worst case."""
    times = {name: large_plan.milliseconds(case, 1_000) for name, case in large_plan.CASES.items()}
    return {"plan_ms_1000_jobs": max(times.values()), "plan_ms": times}
