"""The commands of the benchmarks of what training code meets.

One rule: a command only reads its options.
"""

from typing import Any

import click

from bench.benchmarks.training import elastic, reports
from bench.command import COUNT, JSON, measure, show


@click.command("elastic")
@click.option(
    "--mode",
    "modes",
    type=click.Choice(elastic.MODES),
    multiple=True,
    default=elastic.MODES,
    help="how the job takes up a new size; both by default",
)
@click.option("--step-seconds", type=click.FloatRange(min=0), default=elastic.Options().step_seconds, show_default=True)
@click.option("--save-every", type=COUNT, default=elastic.Options().save_every, show_default=True, help="steps")
@click.option("--seconds", type=click.FloatRange(min=1), default=elastic.Options().seconds, help="limit of each change")
@JSON
def elastic_command(as_json: bool, **options: Any) -> None:
    """Measure resizes of real training jobs.

    torchrun jobs grow, shrink and lose workers on an embedded stack. PyTorch has to be installed."""
    show(measure("elastic", elastic.Options(**options), elastic.run), as_json)


@click.command("reports")
@click.option("--pods", type=COUNT, default=reports.Options().pods, show_default=True)
@click.option("--jobs", type=COUNT, default=reports.Options().jobs, show_default=True)
@click.option("--every", type=click.FloatRange(min=5), default=reports.Options().every, help="between reports of a pod")
@click.option("--seconds", type=click.FloatRange(min=5), default=reports.Options().seconds, show_default=True)
@JSON
def reports_command(as_json: bool, **options: Any) -> None:
    """Measure what reports of training code cost.

    Pods report to a coordinator, and the figures are its CPU time with and without the reports."""
    if options["jobs"] > options["pods"]:
        raise click.UsageError("--jobs must be at most --pods: each job has a pod")
    show(measure("reports", reports.Options(**options), reports.run), as_json)
