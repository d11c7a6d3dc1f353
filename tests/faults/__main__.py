"""Run schedules from the command line.

python -m tests.faults --replay 'quota/memory~7!kill>@31'    one schedule, with everything that happens in it
python -m tests.faults --schedules 2000 --seed 5             random schedules
python -m tests.faults --exhaustive [--scenario quota]       one fault at every call
python -m tests.faults --mutations                           break the product, and check that schedules fail
"""

import argparse
import logging
import os
import sys
import time

from tests.faults import backends, hunt, sharing
from tests.faults.mutations import MUTATIONS, noticed
from tests.faults.scenarios.catalog import SCENARIOS
from tests.faults.schedules import Schedule
from tests.faults.sharing import Search
from tests.faults.verdict import Broken
from tests.faults.world import World


def main() -> int:
    """Run the command and return its exit code: 1 if a schedule failed (with --mutations: if a mutation was missed)."""
    arguments = _arguments()
    logging.disable(logging.CRITICAL)
    if arguments.replay:
        return replay(Schedule.parse(arguments.replay))
    if arguments.mutations:
        return mutations(arguments.schedules)
    search = Search(
        tuple(arguments.scenario or SCENARIOS),
        arguments.backend,
        arguments.schedules,
        arguments.seed,
        arguments.exhaustive,
        arguments.processes,
    )
    began = time.monotonic()
    shares = sharing.run(search)
    seconds = time.monotonic() - began
    count, worked = sum(each.count for each in shares), sum(each.worked for each in shares)
    failures = [failure for each in shares for failure in each.failures]
    for failure in failures:
        print(failure)
    rates = f"{count / seconds:.0f}/s, {count / max(worked, 0.001):.0f} per second of one core"
    print(f"{count} schedules in {seconds:.1f} s ({rates}), {len(failures)} broken")
    return 1 if failures else 0


def replay(schedule: Schedule) -> int:
    """Run one schedule, print everything that happens in it, and return the exit code."""
    with backends.places(schedule.backend) as place:
        expected = list(hunt.quiet(schedule.scenario).left)
        world = World(schedule, place, expected, tracing=True)
        try:
            world.run()
        except Broken as error:
            world.trace.append(f"BROKEN: {error}")
        print("\n".join(world.trace))
    return 1 if world.trace[-1].startswith("BROKEN") else 0


def mutations(most: int) -> int:
    """Print how many schedules it takes to notice each mutation, and return the exit code."""
    missed = 0
    for name in MUTATIONS:
        count, failure = noticed(name, most)
        missed += failure is None
        print(f"{name}: " + (f"noticed by schedule {count}: {failure}" if failure else f"NOT noticed by {count}"))
    return 1 if missed else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__.partition("\n")[0])
    parser.add_argument("--replay", metavar="SCHEDULE")
    parser.add_argument("--schedules", type=int, default=500, metavar="N")
    parser.add_argument("--seed", type=int, default=1, metavar="S")
    parser.add_argument("--scenario", action="append", choices=sorted(SCENARIOS))
    parser.add_argument("--backend", choices=("memory", "redis", "fakeredis"), default="memory")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1, metavar="N", help="that share the work")
    parser.add_argument("--exhaustive", action="store_true", help="one fault at every call")
    parser.add_argument("--mutations", action="store_true", help="break the product, and see who notices")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
