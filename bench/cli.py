"""`python -m bench [NAME]`: one benchmark, or the list of them with a short run of each.

One rule: a benchmark takes a frozen Options and gives figures; everything about words and JSON is here.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import click
import orjson

from bench.benchmarks import (
    burst,
    churn,
    fairness,
    hostile,
    ingest,
    kueue_baseline,
    latency,
    memory,
    picks,
    pods,
    reconcile,
    scale,
    simulate,
    worst,
)
from bench.errors import BenchError
from bench.report import Figures, report, text
from bench.support import apiserver, machine, panels
from bench.support.panels import PANELS
from coordinator.errors import CoordinatorError
from kube.errors import ClusterError
from queues.errors import QueueError

SHORT: Mapping[str, Callable[[], dict[str, Any]]] = {
    "fairness": lambda: measured("fairness", fairness.SHORT, fairness.run),
    "simulate": lambda: measured("simulate", simulate.SHORT, simulate.run),
    "picks": lambda: measured("picks", picks.SHORT, picks.run),
    "ingest": lambda: measured("ingest", ingest.SHORT, ingest.run),
    "memory": lambda: measured("memory", memory.SHORT, memory.run),
    "reconcile": lambda: measured("reconcile", reconcile.SHORT, reconcile.run),
    "pods": lambda: measured("pods", pods.SHORT, pods.run),
    "apiserver": lambda: measured("apiserver", apiserver.SHORT, apiserver.run),
    "burst": lambda: measured("burst", burst.SHORT, burst.run),
    "churn": lambda: measured("churn", churn.SHORT, churn.run),
    "kueue-baseline": lambda: measured("kueue-baseline", kueue_baseline.SHORT, kueue_baseline.run),
    "latency": lambda: measured("latency", latency.SHORT, latency.run),
    "hostile": lambda: measured("hostile", hostile.SHORT, hostile.run),
}
_JSON = click.option("--json", "as_json", is_flag=True, help="print one JSON object")
_PLOT = click.option("--plot", type=click.Path(dir_okay=False), default="", help="a PNG of its curves, to be written")
Options = TypeVar("Options")
_COUNT = click.IntRange(min=1)


def measured(name: str, options: Options, run: Callable[[Options], Figures]) -> dict[str, Any]:
    """One run and where it took place. ClickException if it could not be measured."""
    facts, before = machine.facts(), machine.load()
    try:
        figures = run(options)
    except (BenchError, QueueError, ClusterError, CoordinatorError) as error:
        raise click.ClickException(f"{name}: {error}") from error
    return report(name, options, figures, {**facts, "load_before": before, "load_after": machine.load()})


@click.group(invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--json", "as_json", is_flag=True, help="print the short runs as one JSON array")
@click.pass_context
def main(context: click.Context, as_json: bool) -> None:
    """How fast, how fair; bench/README.md says how to read it. Without a name: a short run of each benchmark."""
    if context.invoked_subcommand:
        return
    results = []
    for name, command in main.commands.items():
        if not as_json:
            click.echo(f"{name}: {command.get_short_help_str(90)}")
    for run in SHORT.values():
        results.append(run())
        results[-1].pop(PANELS, None)
        if not as_json:
            click.echo("\n" + text(results[-1]))
    if as_json:
        click.echo(orjson.dumps(results, option=orjson.OPT_INDENT_2))


@main.command("picks")
@click.option("--queues", type=_COUNT, default=picks.Options().queues, show_default=True)
@click.option("--jobs", type=_COUNT, default=picks.Options().jobs, show_default=True)
@click.option("--hard", is_flag=True, help="quotas, cohorts, jobs that do not fit, others that come and go")
@click.option("--batch", type=_COUNT, default=picks.Options().batch, show_default=True, help="most picks per commit")
@click.option("--seconds", type=click.FloatRange(min=0.1), default=picks.Options().seconds, show_default=True)
@_JSON
def picks_command(as_json: bool, **given: Any) -> None:
    """Durable picks per second through a real Redis."""
    _show(measured("picks", picks.Options(**given), picks.run), as_json)


@main.command("ingest")
@click.option("--jobs", type=_COUNT, default=ingest.Options().jobs, show_default=True)
@click.option("--queues", type=_COUNT, default=ingest.Options().queues, show_default=True)
@click.option("--worst", "is_worst", is_flag=True, help="the objects that cost a reader most, one by one")
@_JSON
def ingest_command(as_json: bool, is_worst: bool, **given: Any) -> None:
    """Lines of a watch to entries in Redis, per second."""
    if is_worst:
        _show(measured("worst", worst.Options(), worst.run), as_json)
        return
    _show(measured("ingest", ingest.Options(**given), ingest.run), as_json)


@main.command("memory")
@click.option("--jobs", type=_COUNT, default=memory.Options().jobs, show_default=True)
@click.option("--queues", type=_COUNT, default=memory.Options().queues, show_default=True)
@click.option("--seconds", type=click.FloatRange(min=1), default=memory.Options().seconds, help="when to give up")
@_JSON
def memory_command(as_json: bool, **given: Any) -> None:
    """Memory of the coordinator and of Redis while many jobs wait."""
    _show(measured("memory", memory.Options(**given), memory.run), as_json)


@main.command("reconcile")
@click.option("--keys", type=_COUNT, default=reconcile.Options().keys, show_default=True)
@click.option("--plain-jobs", type=_COUNT, default=reconcile.Options().plain_jobs, show_default=True)
@click.option("--work-ms", type=click.FloatRange(min=0), default=0.0, show_default=True, help="each run sleeps so long")
@click.option("--threads", type=_COUNT, default=reconcile.Options().threads, show_default=True)
@click.option(
    "--size", "sizes", type=_COUNT, multiple=True, default=reconcile.Options().sizes, show_default=True, help="of jobs"
)
@click.option("--pods", type=_COUNT, default=reconcile.Options().pods, show_default=True, help="of all jobs of a size")
@click.option("--real", is_flag=True, help="whole reconciles on kube-apiserver and etcd (KUBEBUILDER_ASSETS)")
@_JSON
def reconcile_command(as_json: bool, **given: Any) -> None:
    """Reconciles per second: no-op, beside plain RQ jobs, and whole, beside the same API calls made bare."""
    _show(measured("reconcile", reconcile.Options(**given), reconcile.run), as_json)


@main.command("fairness")
@click.option("--picks", type=_COUNT, default=fairness.Options().picks, show_default=True)
@click.option("--pool", type=click.IntRange(min=0), default=0, show_default=True, help="shared GPUs; 0: no limit")
@click.option("--batch", type=_COUNT, default=fairness.Options().batch, show_default=True, help="most picks per commit")
@click.option("--games", is_flag=True, help="queues that show their jobs so as to get more than their share")
@click.option("--seed", type=int, default=fairness.Options().seed, show_default=True)
@_PLOT
@_JSON
def fairness_command(as_json: bool, plot: str, **given: Any) -> None:
    """How close admitted GPUs stay to the weights, how long anybody waits, and a large job among small ones."""
    if 0 < given["pool"] < max(fairness.SIZES):
        raise click.BadParameter(f"the largest job needs {max(fairness.SIZES)} GPUs", param_hint="--pool")
    _show(measured("fairness", fairness.Options(**given), fairness.run), as_json, plot)


@main.command("simulate")
@click.option("--trace", type=click.Path(dir_okay=False), default="", help="CSV file of tasks; a queue per qos")
@click.option("--scenario", type=click.Path(dir_okay=False), default="", help="YAML file of queues, jobs and a pool")
@click.option("--jobs", type=_COUNT, default=simulate.Options().jobs, show_default=True, help="without a file")
@click.option(
    "--room",
    type=click.FloatRange(min=0, min_open=True),
    default=simulate.Options().room,
    show_default=True,
    help="of a trace: the pool as a part of its peak",
)
@click.option("--cost", default=simulate.Options().cost, show_default=True, help="jobs or a resource")
@click.option("--against/--alone", default=True, show_default=True, help="FIFO and plain round robin, too")
@click.option("--seed", type=int, default=simulate.Options().seed, show_default=True)
@_PLOT
@_JSON
def simulate_command(as_json: bool, plot: str, **given: Any) -> None:
    """Waits, utilisation and fairness of many jobs under a virtual clock, beside FIFO and plain round robin."""
    _show(measured("simulate", simulate.Options(**given), simulate.run), as_json, plot)


@main.command("apiserver")
@click.option("--objects", type=click.IntRange(min=20), default=apiserver.Options().objects, show_default=True)
@click.option("--threads", type=_COUNT, default=apiserver.Options().threads, show_default=True)
@_JSON
def apiserver_command(as_json: bool, **given: Any) -> None:
    """Requests per second and watch lag of the embedded API server."""
    _show(measured("apiserver", apiserver.Options(**given), apiserver.run), as_json)


@main.command("burst")
@click.option("--jobs", type=_COUNT, default=burst.Options().jobs, show_default=True)
@click.option("--pods", type=_COUNT, default=burst.Options().pods, show_default=True, help="of each job")
@click.option("--queues", type=_COUNT, default=burst.Options().queues, show_default=True)
@click.option("--clients", type=_COUNT, default=burst.Options().clients, show_default=True, help="that create jobs")
@click.option("--threads", type=_COUNT, default=burst.Options().threads, show_default=True, help="of each client")
@click.option("--cpus", type=_COUNT, default=burst.Options().cpus, show_default=True, help="pods at once")
@click.option("--workers", type=_COUNT, default=burst.Options().workers, show_default=True)
@click.option("--seconds", type=click.FloatRange(min=1), default=burst.Options().seconds, help="when to give up")
@_JSON
def burst_command(as_json: bool, **given: Any) -> None:
    """Thousands of TorchJobs created at once on a whole embedded stack, until all have ended."""
    _show(measured("burst", burst.Options(**given), burst.run), as_json)


@main.command("scale")
@click.option("--jobs", type=_COUNT, default=scale.Options().jobs, show_default=True)
@click.option("--queues", type=_COUNT, default=scale.Options().queues, show_default=True)
@click.option("--workers", type=_COUNT, default=scale.Options().workers, show_default=True)
@click.option("--cpus", type=_COUNT, default=scale.Options().cpus, show_default=True, help="jobs at once")
@click.option("--clients", type=_COUNT, default=scale.Options().clients, show_default=True, help="that create jobs")
@click.option("--threads", type=_COUNT, default=scale.Options().threads, show_default=True, help="of each client")
@click.option("--seconds", type=click.FloatRange(min=1), default=scale.Options().seconds, help="when to give up")
@_JSON
def scale_command(as_json: bool, **given: Any) -> None:
    """Many jobs on a real API server (KUBEBUILDER_ASSETS), each process under its own account."""
    _show(measured("scale", scale.Options(**given), scale.run), as_json)


@main.command("churn")
@click.option("--jobs", type=_COUNT, default=churn.Options().jobs, show_default=True)
@click.option("--alive", type=_COUNT, default=churn.Options().alive, show_default=True, help="at the same time")
@click.option("--pods", type=click.Choice(["played", "real"]), default="played", show_default=True)
@click.option("--ttl", type=click.IntRange(min=0), default=churn.Options().ttl, show_default=True, help="seconds")
@click.option("--samples", type=click.IntRange(min=2), default=churn.Options().samples, show_default=True)
@click.option("--threads", type=_COUNT, default=churn.Options().threads, show_default=True)
@click.option("--workers", type=_COUNT, default=churn.Options().workers, show_default=True)
@click.option("--seconds", type=click.FloatRange(min=1), default=churn.Options().seconds, help="when to give up")
@click.option("--log", type=click.Path(dir_okay=False), default="", help="a file to add each sample to, as it is taken")
@_JSON
def churn_command(as_json: bool, **given: Any) -> None:
    """Memory, files and keys while jobs come and go."""
    _show(measured("churn", churn.Options(**given), churn.run), as_json)


_KUBECONFIG = click.option(
    "--kubeconfig", type=click.Path(exists=True, dir_okay=False), help="of the API server to use"
)
_REAL = click.option("--real", is_flag=True, help="start kube-apiserver and etcd (KUBEBUILDER_ASSETS)")
_SERVER_NOTE = "The API server is the embedded one, started for this, unless --kubeconfig or --real says otherwise."


@main.command("kueue-baseline", epilog=_SERVER_NOTE)
@click.option("--pods", type=click.Choice(["none", "one"]), default="none", show_default=True, help="for each job")
@click.option(
    "--jobs-factor",
    type=click.FloatRange(min=0, min_open=True, max=10),
    default=1.0,
    show_default=True,
    help="of 15,000",
)
@click.option("--workers", type=_COUNT, default=kueue_baseline.Options().workers, show_default=True)
@click.option("--clients", type=_COUNT, default=kueue_baseline.Options().clients, show_default=True, help="that create")
@click.option("--threads", type=_COUNT, default=kueue_baseline.Options().threads, show_default=True, help="of each")
@click.option(
    "--seconds", type=click.FloatRange(min=1), default=kueue_baseline.Options().seconds, help="when to give up"
)
@_KUBECONFIG
@_REAL
@_PLOT
@_JSON
def kueue_baseline_command(as_json: bool, plot: str, **given: Any) -> None:
    """Kueue's scalability test: 15,000 jobs in 30 queues of 5 cohorts."""
    options = kueue_baseline.Options(**_one_server(given))
    _show(measured("kueue-baseline", options, kueue_baseline.run), as_json, plot)


@main.command("latency", epilog=_SERVER_NOTE)
@click.option("--rate", type=click.FloatRange(min=0, min_open=True), default=latency.Options().rate, show_default=True)
@click.option("--seconds", type=click.FloatRange(min=1), default=latency.Options().seconds, show_default=True)
@click.option("--arrivals", type=click.Choice(["poisson", "even"]), default="poisson", show_default=True)
@click.option("--queues", type=_COUNT, default=latency.Options().queues, show_default=True)
@click.option(
    "--run-ms", type=click.IntRange(min=0), default=latency.Options().run_ms, show_default=True, help="of pods"
)
@click.option("--workers", type=_COUNT, default=latency.Options().workers, show_default=True)
@click.option("--threads", type=_COUNT, default=latency.Options().threads, show_default=True, help="that create jobs")
@click.option("--seed", type=int, default=latency.Options().seed, show_default=True)
@_KUBECONFIG
@_REAL
@_PLOT
@_JSON
def latency_command(as_json: bool, plot: str, **given: Any) -> None:
    """From a job's intended arrival to its admission and its pod, at a fixed rate of arrivals."""
    _show(measured("latency", latency.Options(**_one_server(given)), latency.run), as_json, plot)


@main.command("hostile")
@click.option("--attack", type=click.Choice(list(hostile.ATTACKS)), default=hostile.Options().attack, show_default=True)
@click.option("--jobs", type=_COUNT, default=hostile.Options().jobs, show_default=True, help="of the attacker")
@click.option(
    "--attack-rate",
    type=click.FloatRange(min=0),
    default=hostile.Options().attack_rate,
    show_default=True,
    help="jobs per second of the attacker; 0: all are there before the measurement",
)
@click.option("--rate", type=click.FloatRange(min=0, min_open=True), default=hostile.Options().rate, show_default=True)
@click.option("--seconds", type=click.FloatRange(min=1), default=hostile.Options().seconds, show_default=True)
@click.option("--patience", type=click.FloatRange(min=1), default=hostile.Options().patience, show_default=True)
@click.option("--workers", type=_COUNT, default=hostile.Options().workers, show_default=True)
@_JSON
def hostile_command(as_json: bool, **given: Any) -> None:
    """A tenant's times from submission to admission, without and with another tenant's attack."""
    _show(measured("hostile", hostile.Options(**given), hostile.run), as_json)


@main.command("pods", epilog=_SERVER_NOTE)
@click.option("--pods", type=click.IntRange(min=4), default=pods.Options().pods, show_default=True)
@click.option("--jobs", type=_COUNT, default=pods.Options().jobs, show_default=True, help="in the part with many")
@click.option("--workers", type=_COUNT, default=pods.Options().workers, show_default=True)
@click.option("--rounds", type=_COUNT, default=pods.Options().rounds, show_default=True, help="of each part")
@click.option("--seconds", type=click.FloatRange(min=1), default=pods.Options().seconds, help="when to give up")
@_KUBECONFIG
@_REAL
@_JSON
def pods_command(as_json: bool, **given: Any) -> None:
    """Pods created per second for one job and for several, as a share of what the client reaches by itself."""
    if given["pods"] < 2 * given["jobs"]:
        raise click.UsageError("--pods: each of the --jobs needs two pods")
    _show(measured("pods", pods.Options(**_one_server(given)), pods.run), as_json)


def _one_server(given: dict[str, Any]) -> dict[str, Any]:
    """UsageError for two of them."""
    if given["kubeconfig"] and given["real"]:
        raise click.UsageError("--kubeconfig names a server, --real starts one: give one of the two")
    return {**given, "kubeconfig": given["kubeconfig"] or ""}


def _show(result: dict[str, Any], as_json: bool, plot: str = "") -> None:
    curves = result.pop(PANELS, ())
    click.echo(orjson.dumps(result, option=orjson.OPT_INDENT_2) if as_json else text(result))
    if plot:
        try:
            panels.draw(curves, result["benchmark"], Path(plot))
        except BenchError as error:
            raise click.ClickException(str(error)) from error
