"""The command of the benchmarks of restarts.

One rule: a command only reads its options.
"""

import os
from typing import Any

import click

from bench.benchmarks.restarts import asks, table
from bench.command import COUNT, JSON, measure, show


@click.command("restarts")
@click.option("--pods", type=COUNT, default=asks.Options().pods, show_default=True, help="of the one job")
@click.option("--workers", type=COUNT, default=asks.Options().workers, show_default=True, help="worker processes")
@click.option(
    "--restart-seconds", type=click.FloatRange(min=0), default=asks.Options().restart_seconds, help="of a pod"
)
@click.option("--real", is_flag=True, help="restart small jobs on real nodes instead: --kubeconfig, or this machine")
@click.option("--kubeconfig", type=click.Path(exists=True, dir_okay=False), help="of a cluster with torchq")
@click.option("--namespace", default=table.Options().namespace, show_default=True, help="with --real: of the jobs")
@click.option("--image", default=table.Options().image, show_default=True, help="with --real: an image with python3")
@click.option(
    "--failures", type=COUNT, default=table.Options().failures, show_default=True, help="with --real: of a job"
)
@JSON
def restarts_command(
    as_json: bool,
    pods: int,
    workers: int,
    restart_seconds: float,
    real: bool,
    **options: Any,
) -> None:
    """Measure restarts.

    By default, one pod of a large job fails, kubelets are played, and the figures are how soon all other pods are asked
    to restart in place. With --real, small jobs fail and are resized, and the figures are how soon their ranks run
    again."""
    options["kubeconfig"] = options["kubeconfig"] or ""
    if real:
        show(measure("restarts", table.Options(**options), table.run), as_json)
        return
    if options["kubeconfig"]:
        raise click.UsageError("--kubeconfig is for --real")
    if asks.ASSETS not in os.environ:
        click.echo(f"note: {asks.ASSETS} names no kube-apiserver: the embedded API server takes its place", err=True)
    chosen = asks.Options(pods=pods, workers=workers, restart_seconds=restart_seconds)
    show(measure("restarts", chosen, asks.run), as_json)
