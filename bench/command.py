"""What all commands of `python -m bench` share: the run of a benchmark, its options, and the output of its figures.

One rule: a benchmark takes a frozen Options and returns figures; only this module and the list of all benchmarks print.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click
import orjson

from bench.errors import BenchError
from bench.report import Figures, report, text
from bench.support import machine, panels
from bench.support.panels import PANELS
from coordinator.errors import CoordinatorError
from kube.errors import ClusterError
from queues.errors import QueueError

JSON = click.option("--json", "as_json", is_flag=True, help="print one JSON object")
PLOT = click.option("--plot", type=click.Path(dir_okay=False), default="", help="write the curves to this PNG file")
COUNT = click.IntRange(min=1)
Options = TypeVar("Options")


def measure(name: str, options: Options, run: Callable[[Options], Figures]) -> dict[str, Any]:
    """Run a benchmark. Return its figures with facts about the machine. Raises ClickException if it could not
    measure."""
    facts, before = machine.facts(), machine.load()
    try:
        figures = run(options)
    except (BenchError, QueueError, ClusterError, CoordinatorError) as error:
        raise click.ClickException(f"{name}: {error}") from error
    return report(name, options, figures, {**facts, "load_before": before, "load_after": machine.load()})


def show(result: dict[str, Any], as_json: bool, plot: str = "") -> None:
    """Print the figures of a run, and draw its curves if a file is named."""
    curves = result.pop(PANELS, ())
    click.echo(orjson.dumps(result, option=orjson.OPT_INDENT_2) if as_json else text(result))
    if plot:
        try:
            panels.draw(curves, result["benchmark"], Path(plot))
        except BenchError as error:
            raise click.ClickException(str(error)) from error
