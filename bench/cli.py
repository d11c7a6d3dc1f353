"""`python -m bench [NAME]`: run one benchmark, or list all of them with a short run of each.

One rule: the table of benchmarks says everything that a command needs beside its options.
"""

import os
from collections.abc import Mapping
from typing import Any

import click
import orjson

from bench.benchmarks import (
    autoscale,
    commands,
    elastic,
    fairness,
    history,
    hostile,
    idle,
    ingest,
    kueue_baseline,
    latency,
    picks,
    reconcile,
    reports,
    restarts,
    simulate,
    topology,
    worst,
)
from bench.benchmarks.dashboard import benchmark as dashboard
from bench.command import Benchmark
from bench.report import text
from bench.support.panels import PANELS

_SERVER_NOTE = "The benchmark starts an embedded API server, unless --kubeconfig or --real is given."


def _check_pool(options: Mapping[str, Any]) -> None:
    if 0 < options["pool"] < max(fairness.SIZES):
        raise click.BadParameter(f"the largest job needs {max(fairness.SIZES)} GPUs", param_hint="--pool")


def _check_server(options: Mapping[str, Any]) -> None:
    if options["kubeconfig"] and options["real"]:
        raise click.UsageError(
            "--kubeconfig and --real exclude each other: the first names a server, the second starts one"
        )


def _check_reporters(options: Mapping[str, Any]) -> None:
    if options["jobs"] > options["pods"]:
        raise click.UsageError("--jobs must be at most --pods: each job has a pod")


def _note_server(_options: Mapping[str, Any]) -> None:
    if restarts.ASSETS not in os.environ:
        click.echo(
            f"note: {restarts.ASSETS} names no kube-apiserver: the embedded API server takes its place", err=True
        )


BENCHMARKS = (
    Benchmark(
        "fairness",
        fairness,
        "Measure how fairly queues are served.\n\nThe figures are how close admitted GPUs stay to the weights, how "
        "long jobs wait, and how many small jobs pass a large one.",
        has_curves=True,
        check=_check_pool,
    ),
    Benchmark(
        "simulate",
        simulate,
        "Simulate many jobs under a virtual clock.\n\n"
        "The figures are waits, utilisation and fairness, compared with FIFO and plain round robin.",
        has_curves=True,
    ),
    Benchmark(
        "autoscale",
        autoscale,
        "Simulate elastic jobs that grow into idle room and give it back.\n\n"
        "The figures are utilisation, idle room, waits, resizes and lost work, without and with autoscaling.",
    ),
    Benchmark(
        "topology",
        topology,
        "Compare the choice of racks for gangs with Kueue's.\n\n"
        "The figures are gangs that find racks, and how many racks they need, beside the documented algorithm of "
        "topology-aware scheduling.",
    ),
    Benchmark("picks", picks, "Measure picks per second on a real Redis."),
    Benchmark(
        "ingest",
        ingest,
        "Measure how fast watch events are read.\n\n"
        "A figure counts watch events per second, from their text to the entries in Redis.",
        other=Benchmark("worst", worst),
        flag="--worst",
        flag_help="measure the objects that are slowest to read, one by one",
    ),
    Benchmark(
        "history",
        history,
        "Measure writing and reading of the history.\n\n"
        "The figures are multiples of what the bare driver of the database needs for the same rows.",
        note=f"The database is SQLite, unless {history.VARIABLE} names an empty one of PostgreSQL.",
    ),
    Benchmark(
        "reconcile",
        reconcile,
        "Measure reconciles per second.\n\n"
        "No-op reconciles are compared with plain RQ jobs, whole reconciles with the same API calls alone.",
    ),
    Benchmark(
        "kueue-baseline",
        kueue_baseline,
        "Run Kueue's scalability test.\n\nIt has 15,000 jobs in 30 queues of 5 cohorts.",
        note=_SERVER_NOTE,
        has_curves=True,
        check=_check_server,
    ),
    Benchmark(
        "latency",
        latency,
        "Measure the time from arrival to admission.\n\n"
        "Jobs arrive at a fixed rate; the time counts from the planned arrival to admission and to the pod.",
        note=_SERVER_NOTE,
        has_curves=True,
        check=_check_server,
    ),
    Benchmark(
        "hostile",
        hostile,
        "Measure the effect of a hostile tenant.\n\n"
        "The figures are another tenant's times from submission to admission, without and with the attack.",
    ),
    Benchmark(
        "elastic",
        elastic,
        "Measure resizes of real training jobs.\n\n"
        "torchrun jobs grow, shrink and lose workers on an embedded stack. PyTorch has to be installed.",
    ),
    Benchmark(
        "reports",
        reports,
        "Measure what reports of training code cost.\n\n"
        "Pods report to a coordinator, and the figures are its CPU time with and without the reports.",
        check=_check_reporters,
    ),
    Benchmark(
        "commands",
        commands,
        "Measure how long commands take.\n\n"
        "The figures are ratios to an empty Python program and to one list of the API.",
    ),
    Benchmark(
        "idle",
        idle,
        "Measure the CPU use of an idle cluster.\n\nA whole embedded stack runs one job, and then nothing.",
    ),
    Benchmark(
        "dashboard",
        dashboard,
        "Measure the dashboard.\n\n"
        "The figures are the time of pages, the bytes and CPU time of streams, and what looking costs a whole embedded "
        "cluster, as multiples of references.",
    ),
    Benchmark(
        "restarts",
        restarts,
        "Measure restarts.\n\nOne pod of a large job fails, kubelets are played, and the figures are how soon all "
        "other pods are asked to restart in place.",
        check=_note_server,
    ),
)


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
    for each in BENCHMARKS:
        if not hasattr(each.module, "SHORT"):
            continue  # it needs PyTorch
        results.append(each.measure(each.module.SHORT))
        results[-1].pop(PANELS, None)
        if not as_json:
            click.echo("\n" + text(results[-1]))
    if as_json:
        click.echo(orjson.dumps(results, option=orjson.OPT_INDENT_2))


for _each in BENCHMARKS:
    main.add_command(_each.command())
