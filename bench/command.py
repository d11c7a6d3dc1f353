"""The command of a benchmark: its options, its run, and the output of its figures.

One rule: a benchmark takes frozen Options and returns figures; only this module and the list of all benchmarks print.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from types import ModuleType
from typing import Any

import click
import orjson

from bench.errors import BenchError
from bench.options import click_options
from bench.report import report, text
from bench.support import machine, panels
from bench.support.panels import PANELS
from coordinator.errors import CoordinatorError
from kube.errors import ClusterError
from queues.errors import QueueError


@dataclass(frozen=True, slots=True)
class Benchmark:
    """A benchmark, and the text of its command."""

    name: str
    module: ModuleType
    """It has `Options`, `run`, and in most cases `SHORT`, the Options of a short run."""
    help: str = ""
    note: str = ""
    """The end of the help."""
    has_curves: bool = False
    check: Callable[[Mapping[str, Any]], None] = lambda _: None
    """Raises UsageError if the options do not go together."""
    other: "Benchmark | None" = None
    """The benchmark that `flag` chooses instead. Its options are options of this command, too."""
    flag: str = ""
    flag_help: str = ""

    def measure(self, options: Any) -> dict[str, Any]:
        """Return the figures with facts about the machine. Raises ClickException if the benchmark could not measure."""
        facts, before = machine.facts(), machine.load()
        try:
            figures = self.module.run(options)
        except (BenchError, QueueError, ClusterError, CoordinatorError) as error:
            raise click.ClickException(f"{self.name}: {error}") from error
        return report(self.name, options, figures, {**facts, "load_before": before, "load_after": machine.load()})

    def command(self) -> click.Command:
        """Return the command."""
        options = {each.name: each for each in click_options(self.module.Options)}
        if self.other:
            options["other"] = click.Option([self.flag, "other"], is_flag=True, help=self.flag_help)
            options |= {each.name: each for each in click_options(self.other.module.Options)}
        if self.has_curves:
            file = click.Path(dir_okay=False)
            options["plot"] = click.Option(["--plot"], type=file, default="", help="write the curves to this PNG file")
        options["json"] = click.Option(["--json", "as_json"], is_flag=True, help="print one JSON object")
        return click.Command(
            self.name, callback=self._run, params=list(options.values()), help=self.help, epilog=self.note or None
        )

    def _run(self, *, as_json: bool, plot: str = "", other: bool = False, **given: Any) -> None:
        self.check(given)
        chosen = self.other if other and self.other else self
        known = {each.name for each in fields(chosen.module.Options)}
        options = {name: value for name, value in given.items() if name in known and value is not None}
        result = chosen.measure(chosen.module.Options(**options))
        curves = result.pop(PANELS, ())
        click.echo(orjson.dumps(result, option=orjson.OPT_INDENT_2) if as_json else text(result))
        if plot:
            try:
                panels.draw(curves, result["benchmark"], Path(plot))
            except BenchError as error:
                raise click.ClickException(str(error)) from error
