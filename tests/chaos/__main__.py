"""`python -m tests.chaos --seed N --seconds S [--faults kill,stop,...]`: faults against real processes.

One rule: a failed run prints the command that repeats it. The exit code is 0 if every promise held, and 1 if a promise
was broken.
"""

import argparse
import json
import random
import shutil
import sys
import tempfile
from pathlib import Path

from tests.chaos import measure, plan
from tests.chaos.play import Options, Outcome, Play


def main() -> int:
    """Play one run or take one measurement, and return the exit code."""
    arguments = _parser().parse_args()
    if arguments.measure:
        print(json.dumps(measure.MEASURES[arguments.measure](arguments.size), indent=2))
        return 0
    seed = arguments.seed if arguments.seed is not None else random.randrange(10**6)
    options = Options(
        sentinels=arguments.sentinels,
        seed=seed,
        seconds=arguments.seconds,
        faults=_faults(arguments),
        every=arguments.every,
        slack=arguments.slack,
    )
    folder = Path(tempfile.mkdtemp(prefix="torchq-chaos-"))
    print(f"chaos: seed {seed}, {options.seconds:.0f} s, faults {','.join(options.faults)}", file=sys.stderr)
    outcome = Play(options, folder / "run", lambda line: print(line, file=sys.stderr, flush=True)).run()
    print(json.dumps(outcome.figures, indent=2))
    if not outcome.wrong:
        shutil.rmtree(folder)
        print(f"chaos: {outcome.figures['jobs']} jobs, {outcome.figures['faults']} faults, every promise held")
        return 0
    print(told(options, outcome, folder), file=sys.stderr)
    return 1


def told(options: Options, outcome: Outcome, folder: Path) -> str:
    """Return the report of a failed run, with the command that repeats it."""
    faults = ",".join(options.faults)
    lines = ["", "chaos: FAILED", *outcome.wrong, "", "what happened:", *outcome.log, "", f"logs: {folder}"]
    kind = " --sentinels" if options.sentinels else ""
    command = (
        f"python -m tests.chaos{kind} --seed {options.seed} --seconds {options.seconds:g} --every {options.every:g}"
    )
    return "\n".join([*lines, f"again: {command} --faults {faults or repr('')}"])


def _faults(arguments: argparse.Namespace) -> tuple[str, ...]:
    if arguments.faults is None:
        return plan.WITH_SENTINELS if arguments.sentinels else plan.ONE_SERVER
    return tuple(filter(None, arguments.faults.split(",")))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--seed", type=int, help="of jobs and faults (default: any, and it is printed)")
    parser.add_argument("--seconds", type=float, default=60.0, help="how long jobs arrive and faults strike")
    parser.add_argument("--sentinels", action="store_true", help="let Redis be a Sentinel installation")
    parser.add_argument(
        "--faults", help=f"of {', '.join(plan.FAULTS)}; each also as kind:target (default: all that fit)"
    )
    parser.add_argument("--every", type=float, default=4.0, help="seconds from fault to fault, in the mean")
    parser.add_argument("--slack", type=float, default=20.0, help="seconds a slow machine is given on every promise")
    parser.add_argument("--measure", choices=measure.MEASURES, help="measure this instead; prints JSON")
    parser.add_argument("--size", type=int, default=0, help="how much of it (default: as the promise says)")
    return parser


if __name__ == "__main__":
    sys.exit(main())
