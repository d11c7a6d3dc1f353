"""`python -m bench [NAME]`: run one benchmark, or list all of them with a short run of each.

One rule: a benchmark takes a frozen Options and returns figures; only this module prints text or JSON.
"""

from collections.abc import Callable, Mapping
from typing import Any

import click
import orjson

from bench.benchmarks import (
    autoscale,
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
from bench.benchmarks.client import client
from bench.benchmarks.restarts import asks
from bench.benchmarks.training import reports
from bench.client_command import client_command
from bench.command import COUNT, JSON, PLOT, measure, show
from bench.report import text
from bench.restart_commands import restarts_command
from bench.support import apiserver
from bench.support.panels import PANELS
from bench.training_commands import elastic_command, reports_command

SHORT: Mapping[str, Callable[[], dict[str, Any]]] = {
    "fairness": lambda: measure("fairness", fairness.SHORT, fairness.run),
    "simulate": lambda: measure("simulate", simulate.SHORT, simulate.run),
    "autoscale": lambda: measure("autoscale", autoscale.SHORT, autoscale.run),
    "picks": lambda: measure("picks", picks.SHORT, picks.run),
    "ingest": lambda: measure("ingest", ingest.SHORT, ingest.run),
    "memory": lambda: measure("memory", memory.SHORT, memory.run),
    "reconcile": lambda: measure("reconcile", reconcile.SHORT, reconcile.run),
    "pods": lambda: measure("pods", pods.SHORT, pods.run),
    "apiserver": lambda: measure("apiserver", apiserver.SHORT, apiserver.run),
    "burst": lambda: measure("burst", burst.SHORT, burst.run),
    "churn": lambda: measure("churn", churn.SHORT, churn.run),
    "kueue-baseline": lambda: measure("kueue-baseline", kueue_baseline.SHORT, kueue_baseline.run),
    "latency": lambda: measure("latency", latency.SHORT, latency.run),
    "hostile": lambda: measure("hostile", hostile.SHORT, hostile.run),
    "reports": lambda: measure("reports", reports.SHORT, reports.run),
    "client": lambda: measure("client", client.SHORT, client.run),
    "restarts": lambda: measure("restarts", asks.SHORT, asks.run),
}


@click.group(invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--json", "as_json", is_flag=True, help="print the short runs as one JSON array")
@click.pass_context
def main(context: click.Context, as_json: bool) -> None:
    """Measure speed and fairness (see bench/README.md). Without a name, run each benchmark shortly."""
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
@click.option("--queues", type=COUNT, default=picks.Options().queues, show_default=True)
@click.option("--jobs", type=COUNT, default=picks.Options().jobs, show_default=True)
@click.option("--hard", is_flag=True, help="with quotas, cohorts, jobs that do not fit, and jobs that come and go")
@click.option(
    "--scraped", type=click.IntRange(min=0), default=0, help="read metrics beside it; series of so many queues"
)
@click.option("--batch", type=COUNT, default=picks.Options().batch, show_default=True, help="most picks per commit")
@click.option("--seconds", type=click.FloatRange(min=0.1), default=picks.Options().seconds, show_default=True)
@JSON
def picks_command(as_json: bool, **options: Any) -> None:
    """Measure picks per second on a real Redis."""
    show(measure("picks", picks.Options(**options), picks.run), as_json)


@main.command("ingest")
@click.option("--jobs", type=COUNT, default=ingest.Options().jobs, show_default=True)
@click.option("--queues", type=COUNT, default=ingest.Options().queues, show_default=True)
@click.option("--worst", "is_worst", is_flag=True, help="measure the objects that are slowest to read, one by one")
@JSON
def ingest_command(as_json: bool, is_worst: bool, **options: Any) -> None:
    """Measure how fast watch events are read.

    A figure counts watch events per second, from their text to the entries in Redis."""
    if is_worst:
        show(measure("worst", worst.Options(), worst.run), as_json)
        return
    show(measure("ingest", ingest.Options(**options), ingest.run), as_json)


@main.command("memory")
@click.option("--jobs", type=COUNT, default=memory.Options().jobs, show_default=True)
@click.option("--queues", type=COUNT, default=memory.Options().queues, show_default=True)
@click.option("--seconds", type=click.FloatRange(min=1), default=memory.Options().seconds, help="the time limit")
@JSON
def memory_command(as_json: bool, **options: Any) -> None:
    """Measure memory while many jobs wait.

    The figures are of the coordinator and of Redis."""
    show(measure("memory", memory.Options(**options), memory.run), as_json)


@main.command("reconcile")
@click.option("--keys", type=COUNT, default=reconcile.Options().keys, show_default=True)
@click.option("--plain-jobs", type=COUNT, default=reconcile.Options().plain_jobs, show_default=True)
@click.option("--work-ms", type=click.FloatRange(min=0), default=0.0, show_default=True, help="the sleep in each run")
@click.option("--threads", type=COUNT, default=reconcile.Options().threads, show_default=True)
@click.option(
    "--size",
    "sizes",
    type=COUNT,
    multiple=True,
    default=reconcile.Options().sizes,
    show_default=True,
    help="pods of a job",
)
@click.option("--pods", type=COUNT, default=reconcile.Options().pods, show_default=True, help="pods of all jobs")
@click.option("--real", is_flag=True, help="reconcile on kube-apiserver and etcd (KUBEBUILDER_ASSETS)")
@JSON
def reconcile_command(as_json: bool, **options: Any) -> None:
    """Measure reconciles per second.

    No-op reconciles are compared with plain RQ jobs, whole reconciles with the same API calls alone."""
    show(measure("reconcile", reconcile.Options(**options), reconcile.run), as_json)


@main.command("fairness")
@click.option("--picks", type=COUNT, default=fairness.Options().picks, show_default=True)
@click.option("--pool", type=click.IntRange(min=0), default=0, show_default=True, help="shared GPUs; 0: no limit")
@click.option("--batch", type=COUNT, default=fairness.Options().batch, show_default=True, help="most picks per commit")
@click.option("--games", is_flag=True, help="measure queues that try to gain more than their share")
@click.option("--seed", type=int, default=fairness.Options().seed, show_default=True)
@PLOT
@JSON
def fairness_command(as_json: bool, plot: str, **options: Any) -> None:
    """Measure how fairly queues are served.

    The figures are how close admitted GPUs stay to the weights, how long jobs wait, and how many small jobs pass a
    large one."""
    if 0 < options["pool"] < max(fairness.SIZES):
        raise click.BadParameter(f"the largest job needs {max(fairness.SIZES)} GPUs", param_hint="--pool")
    show(measure("fairness", fairness.Options(**options), fairness.run), as_json, plot)


@main.command("autoscale")
@click.option("--trace", type=click.Path(dir_okay=False), default="", help="a CSV file of tasks; each qos is a queue")
@click.option("--jobs", type=COUNT, default=autoscale.Options().jobs, show_default=True, help="jobs without a file")
@click.option(
    "--load",
    type=click.FloatRange(min=0.01),
    default=autoscale.Options().load,
    show_default=True,
    help="of the pool, without a file",
)
@click.option(
    "--room",
    type=click.FloatRange(min=0, min_open=True),
    default=autoscale.Options().room,
    show_default=True,
    help="the pool as a part of the trace's peak",
)
@click.option("--alone", is_flag=True, help="leave out Kueue's rule and EDL's plain loop")
@click.option("--seed", type=int, default=autoscale.Options().seed, show_default=True)
@JSON
def autoscale_command(as_json: bool, alone: bool, **options: Any) -> None:
    """Simulate elastic jobs that grow into idle room and give it back.

    The figures are utilisation, idle room, waits, resizes and lost work, without and with autoscaling."""
    show(measure("autoscale", autoscale.Options(against=not alone, **options), autoscale.run), as_json)


@main.command("simulate")
@click.option("--trace", type=click.Path(dir_okay=False), default="", help="a CSV file of tasks; each qos is a queue")
@click.option("--scenario", type=click.Path(dir_okay=False), default="", help="a YAML file of queues, jobs and a pool")
@click.option("--jobs", type=COUNT, default=simulate.Options().jobs, show_default=True, help="jobs without a file")
@click.option(
    "--room",
    type=click.FloatRange(min=0, min_open=True),
    default=simulate.Options().room,
    show_default=True,
    help="the pool as a part of the trace's peak",
)
@click.option("--cost", default=simulate.Options().cost, show_default=True, help="jobs or a resource")
@click.option("--against/--alone", default=True, show_default=True, help="compare with FIFO and plain round robin")
@click.option("--seed", type=int, default=simulate.Options().seed, show_default=True)
@PLOT
@JSON
def simulate_command(as_json: bool, plot: str, **options: Any) -> None:
    """Simulate many jobs under a virtual clock.

    The figures are waits, utilisation and fairness, compared with FIFO and plain round robin."""
    show(measure("simulate", simulate.Options(**options), simulate.run), as_json, plot)


@main.command("apiserver")
@click.option("--objects", type=click.IntRange(min=20), default=apiserver.Options().objects, show_default=True)
@click.option("--threads", type=COUNT, default=apiserver.Options().threads, show_default=True)
@JSON
def apiserver_command(as_json: bool, **options: Any) -> None:
    """Measure the embedded API server.

    The figures are requests per second and the lag of a watch."""
    show(measure("apiserver", apiserver.Options(**options), apiserver.run), as_json)


@main.command("burst")
@click.option("--jobs", type=COUNT, default=burst.Options().jobs, show_default=True)
@click.option("--pods", type=COUNT, default=burst.Options().pods, show_default=True, help="pods of each job")
@click.option("--queues", type=COUNT, default=burst.Options().queues, show_default=True)
@click.option("--clients", type=COUNT, default=burst.Options().clients, show_default=True, help="client processes")
@click.option("--threads", type=COUNT, default=burst.Options().threads, show_default=True, help="threads per client")
@click.option("--cpus", type=COUNT, default=burst.Options().cpus, show_default=True, help="cpus, one per pod")
@click.option("--workers", type=COUNT, default=burst.Options().workers, show_default=True)
@click.option("--seconds", type=click.FloatRange(min=1), default=burst.Options().seconds, help="the time limit")
@JSON
def burst_command(as_json: bool, **options: Any) -> None:
    """Measure many TorchJobs created at once.

    They run on an embedded stack, until all have ended."""
    show(measure("burst", burst.Options(**options), burst.run), as_json)


@main.command("scale")
@click.option("--jobs", type=COUNT, default=scale.Options().jobs, show_default=True)
@click.option("--queues", type=COUNT, default=scale.Options().queues, show_default=True)
@click.option("--workers", type=COUNT, default=scale.Options().workers, show_default=True)
@click.option("--cpus", type=COUNT, default=scale.Options().cpus, show_default=True, help="cpus, one per job")
@click.option("--clients", type=COUNT, default=scale.Options().clients, show_default=True, help="client processes")
@click.option("--threads", type=COUNT, default=scale.Options().threads, show_default=True, help="threads per client")
@click.option("--seconds", type=click.FloatRange(min=1), default=scale.Options().seconds, help="the time limit")
@JSON
def scale_command(as_json: bool, **options: Any) -> None:
    """Measure many jobs on a real API server.

    The server is started from KUBEBUILDER_ASSETS, and each process has an account of its own."""
    show(measure("scale", scale.Options(**options), scale.run), as_json)


@main.command("churn")
@click.option("--jobs", type=COUNT, default=churn.Options().jobs, show_default=True)
@click.option("--alive", type=COUNT, default=churn.Options().alive, show_default=True, help="most jobs at a time")
@click.option("--pods", type=click.Choice(["played", "real"]), default="played", show_default=True)
@click.option("--ttl", type=click.IntRange(min=0), default=churn.Options().ttl, show_default=True, help="seconds")
@click.option("--samples", type=click.IntRange(min=2), default=churn.Options().samples, show_default=True)
@click.option("--threads", type=COUNT, default=churn.Options().threads, show_default=True)
@click.option("--workers", type=COUNT, default=churn.Options().workers, show_default=True)
@click.option("--seconds", type=click.FloatRange(min=1), default=churn.Options().seconds, help="the time limit")
@click.option("--log", type=click.Path(dir_okay=False), default="", help="append each sample to this file at once")
@JSON
def churn_command(as_json: bool, **options: Any) -> None:
    """Measure growth while jobs come and go.

    The figures are memory, files and keys per 1,000 jobs."""
    show(measure("churn", churn.Options(**options), churn.run), as_json)


_KUBECONFIG = click.option(
    "--kubeconfig", type=click.Path(exists=True, dir_okay=False), help="use the API server of this kubeconfig"
)
_REAL = click.option("--real", is_flag=True, help="start kube-apiserver and etcd (KUBEBUILDER_ASSETS)")
_SERVER_NOTE = "The benchmark starts an embedded API server, unless --kubeconfig or --real is given."


@main.command("kueue-baseline", epilog=_SERVER_NOTE)
@click.option("--pods", type=click.Choice(["none", "one"]), default="none", show_default=True, help="pods of each job")
@click.option(
    "--jobs-factor",
    type=click.FloatRange(min=0, min_open=True, max=10),
    default=1.0,
    show_default=True,
    help="the part of the 15,000 jobs",
)
@click.option("--workers", type=COUNT, default=kueue_baseline.Options().workers, show_default=True)
@click.option("--clients", type=COUNT, default=kueue_baseline.Options().clients, show_default=True, help="processes")
@click.option(
    "--threads", type=COUNT, default=kueue_baseline.Options().threads, show_default=True, help="of each client"
)
@click.option(
    "--seconds", type=click.FloatRange(min=1), default=kueue_baseline.Options().seconds, help="the time limit"
)
@_KUBECONFIG
@_REAL
@PLOT
@JSON
def kueue_baseline_command(as_json: bool, plot: str, **server_options: Any) -> None:
    """Run Kueue's scalability test.

    It has 15,000 jobs in 30 queues of 5 cohorts."""
    options = kueue_baseline.Options(**_check_server(server_options))
    show(measure("kueue-baseline", options, kueue_baseline.run), as_json, plot)


@main.command("latency", epilog=_SERVER_NOTE)
@click.option("--rate", type=click.FloatRange(min=0, min_open=True), default=latency.Options().rate, show_default=True)
@click.option("--seconds", type=click.FloatRange(min=1), default=latency.Options().seconds, show_default=True)
@click.option("--arrivals", type=click.Choice(["poisson", "even"]), default="poisson", show_default=True)
@click.option("--queues", type=COUNT, default=latency.Options().queues, show_default=True)
@click.option(
    "--run-ms",
    type=click.IntRange(min=0),
    default=latency.Options().run_ms,
    show_default=True,
    help="the run time of pods",
)
@click.option("--workers", type=COUNT, default=latency.Options().workers, show_default=True)
@click.option(
    "--threads", type=COUNT, default=latency.Options().threads, show_default=True, help="threads that create jobs"
)
@click.option("--seed", type=int, default=latency.Options().seed, show_default=True)
@_KUBECONFIG
@_REAL
@PLOT
@JSON
def latency_command(as_json: bool, plot: str, **options: Any) -> None:
    """Measure the time from arrival to admission.

    Jobs arrive at a fixed rate; the time counts from the planned arrival to admission and to the pod."""
    show(measure("latency", latency.Options(**_check_server(options)), latency.run), as_json, plot)


@main.command("hostile")
@click.option("--attack", type=click.Choice(list(hostile.ATTACKS)), default=hostile.Options().attack, show_default=True)
@click.option("--jobs", type=COUNT, default=hostile.Options().jobs, show_default=True, help="jobs of the attacker")
@click.option(
    "--attack-rate",
    type=click.FloatRange(min=0),
    default=hostile.Options().attack_rate,
    show_default=True,
    help="jobs per second of the attacker; 0: all exist before the measurement",
)
@click.option("--rate", type=click.FloatRange(min=0, min_open=True), default=hostile.Options().rate, show_default=True)
@click.option("--seconds", type=click.FloatRange(min=1), default=hostile.Options().seconds, show_default=True)
@click.option("--patience", type=click.FloatRange(min=1), default=hostile.Options().patience, show_default=True)
@click.option("--workers", type=COUNT, default=hostile.Options().workers, show_default=True)
@JSON
def hostile_command(as_json: bool, **options: Any) -> None:
    """Measure the effect of a hostile tenant.

    The figures are another tenant's times from submission to admission, without and with the attack."""
    show(measure("hostile", hostile.Options(**options), hostile.run), as_json)


@main.command("pods", epilog=_SERVER_NOTE)
@click.option("--pods", type=click.IntRange(min=4), default=pods.Options().pods, show_default=True)
@click.option("--jobs", type=COUNT, default=pods.Options().jobs, show_default=True, help="jobs of the many-jobs part")
@click.option("--workers", type=COUNT, default=pods.Options().workers, show_default=True)
@click.option("--rounds", type=COUNT, default=pods.Options().rounds, show_default=True, help="rounds of each part")
@click.option("--seconds", type=click.FloatRange(min=1), default=pods.Options().seconds, help="the time limit")
@_KUBECONFIG
@_REAL
@JSON
def pods_command(as_json: bool, **options: Any) -> None:
    """Measure pods created per second.

    The figures for one job and for several jobs are compared with the same API calls alone."""
    if options["pods"] < 2 * options["jobs"]:
        raise click.UsageError("--pods must be at least twice --jobs: each job needs two pods")
    show(measure("pods", pods.Options(**_check_server(options)), pods.run), as_json)


def _check_server(options: dict[str, Any]) -> dict[str, Any]:
    """Return the options with a kubeconfig. Raises UsageError if they name two servers."""
    if options["kubeconfig"] and options["real"]:
        raise click.UsageError(
            "--kubeconfig and --real exclude each other: the first names a server, the second starts one"
        )
    return {**options, "kubeconfig": options["kubeconfig"] or ""}


for command in (elastic_command, reports_command, client_command, restarts_command):
    main.add_command(command)
