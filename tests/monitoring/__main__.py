"""`python -m tests.monitoring [--only ALERT,...]`: the board and the alerts on a real Prometheus and a whole stack.

One rule: the command ends everything that it has started. The exit code is 0 if the board has data, the figures agree,
and every alert fired at its cause and resolved. The exit code is 1 if any of these failed, and 2 if Prometheus is
missing.
"""

import argparse
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

from tests.monitoring import play, prometheus, scaled_rules
from tests.monitoring.watch import Row

_STOPS = (signal.SIGINT, signal.SIGTERM)


def main() -> int:
    """Play one run, print its table, and return the exit code."""
    arguments = _parser().parse_args()
    if not prometheus.is_installed():
        print(f"monitoring: {prometheus.MISSING}", file=sys.stderr)
        return 2
    known = {cause.alert for cause in play.every_alert()}
    chosen = set(filter(None, arguments.only.split(",")))
    if unknown := chosen - known:
        print(f"--only: no alert {', '.join(sorted(unknown))}; there are {', '.join(sorted(known))}", file=sys.stderr)
        return 2
    for number in _STOPS:
        signal.signal(number, _interrupt)
    folder = Path(tempfile.mkdtemp(prefix="torchq-monitoring-"))
    print(f"monitoring: a minute of the rules is {60 / scaled_rules.FACTOR:.0f} s here; thresholds as an admin may set")
    print(f"them: {', '.join(f'{name}={value}' for name, value in scaled_rules.VALUES.items())}", flush=True)
    began = time.monotonic()
    try:
        outcome = play.play(folder / "run", chosen, lambda line: print(_stamp(began), line, flush=True))
    except KeyboardInterrupt:
        shutil.rmtree(folder)
        print("\nmonitoring: interrupted; everything that was started has ended", file=sys.stderr)
        return 130
    print(table(outcome.rows))
    if outcome.wrong:
        print("\n".join(["", "monitoring: FAILED", *outcome.wrong, f"logs: {folder}"]), file=sys.stderr)
        return 1
    shutil.rmtree(folder)
    alerts = len({row.cause.alert for row in outcome.rows})
    print(f"monitoring: {alerts} alerts fired and resolved in {time.monotonic() - began:.0f} s")
    return 0


def _interrupt(*_: object) -> None:
    """Begin the end of the run. Later signals must not interrupt the code that ends the processes."""
    for number in _STOPS:
        signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt


def table(rows: list[Row]) -> str:
    """Return the table of a run."""
    lines = [("ALERT", "CAUSE", "FIRED AFTER", "RESOLVED AFTER")]
    lines += [
        (row.cause.alert, row.cause.text, _seconds(row.fired_after), _seconds(row.resolved_after)) for row in rows
    ]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in lines)


def _seconds(value: float | None) -> str:
    return "never" if value is None else f"{value:.1f} s"


def _stamp(began: float) -> str:
    return f"{time.monotonic() - began:6.1f}"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.monitoring", description=__doc__)
    parser.add_argument("--only", default="", help="make the causes of these alerts only, separated by commas")
    return parser


if __name__ == "__main__":
    sys.exit(main())
