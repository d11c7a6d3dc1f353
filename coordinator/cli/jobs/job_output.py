"""`torchq job logs` and `torchq job reports`: the output of jobs, and the reports in it.

One rule: standard output has only what the jobs have printed; the messages of torchq are written to standard error.
"""

import queue
import threading
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

import click

from coordinator.cli import api_client, job_ref, output
from coordinator.cli.jobs import followed_output, selected
from coordinator.cli.jobs.followed_output import LinePrinter
from coordinator.cli.jobs.selected import JobChoice
from coordinator.cli.lazy_group import USER_ERRORS
from coordinator.cli.session import Session, format_error, pass_session
from coordinator.follow import printed_reports as job_reports
from coordinator.follow.job_feed import JobFeeds
from coordinator.follow.log_lines import LogLine, LogSelection
from coordinator.follow.present_logs import NoSuchPod
from coordinator.follow.sent_reports import SentReports, merge
from kube.api import Manifest

_BUFFERED = 1_000


@click.command()
@selected.jobs_argument
@click.option("-f", "--follow", "is_followed", is_flag=True, help="go on until the job ends, through restarts")
@click.option("--all", "all_pods", is_flag=True, help="all pods, each line with its pod")
@click.option("--task", default="", help="task type (default: the one of rank 0)")
@click.option("--index", default=0, show_default=True, type=click.IntRange(min=0), help="which pod of the task")
@click.option("-c", "--container", default="", help="container (default: the main one)")
@click.option("--tail", type=click.IntRange(min=0), metavar="LINES", help="begin with the last lines of each pod")
@click.option("-p", "--previous", is_flag=True, help="the run before the last restart")
@click.option(
    "--run", type=click.IntRange(min=1), metavar="N", help="the N-th run of each pod alone (default: all runs)"
)
@click.option("--raw", is_flag=True, help="as the pods printed it, with control characters and all states")
@pass_session
def logs(session: Session, /, jobs: JobChoice, is_followed: bool, all_pods: bool, raw: bool, **options: Any) -> None:
    """Print the logs of jobs.

    All runs of a pod are printed, with a line between them; with --tail, the end of the last run.
    With -f, a job that waits says why, and the log follows it to its end: through restarts, replaced pods and lost
    connections. Long lines are cut and marked. Of a progress bar the last state is printed, and on a terminal the
    newest state. Colors stay; other control characters are left out or shown as escapes, but for --raw. Exit
    code 1: there is nothing to print, and the message says why.

    \b
    torchq job logs train-x7k2p -f --all
    torchq job logs train-x7k2p --task Worker --index 2 --tail 50
    """
    if is_followed and (options["previous"] or options["run"]):
        raise click.UsageError("--previous and --run show one run, so that there is nothing to follow")
    if options["previous"] and options["run"]:
        raise click.UsageError("--previous is the run before the last one: give it or --run, not both")
    states = followed_output.states(raw=raw)
    selection = LogSelection(all=all_pods, follow=is_followed, states=states, **options)
    items = jobs.all(session)
    printer = LinePrinter(raw=raw)
    try:
        with JobFeeds(session.cluster) as feeds:
            for item, line in _lines(session, feeds, items, selection):
                _print(printer, line, item if len(items) > 1 else None, labelled=all_pods)
    finally:
        printer.clear()


@click.command()
@selected.jobs_argument
@click.option("-f", "--follow", "is_followed", is_flag=True, help="go on until the job ends")
@click.option("--task", default="", help="only of this task type")
@click.option("--index", default=0, type=click.IntRange(min=0), help="which pod of the task")
@pass_session
def reports(session: Session, jobs: JobChoice, is_followed: bool, task: str, index: int) -> None:
    """Print what training code reports.

    One JSON object a line for each call of torchq.report, of all pods, with `pod` and `time`. Code that reports with
    the progress protocol of Kubeflow Trainer, as the Trainer of Hugging Face does, prints nothing: with -f all its
    reports come, else the last one of each pod.

    \b
    torchq job reports train-x7k2p -f | jq .loss
    """
    selection = LogSelection(task=task, index=index, all=not task, follow=is_followed)
    items = jobs.all(session)
    sent = _SentByJobs(session, items, f"{task.lower()}-{index}" if task else "")
    with JobFeeds(session.cluster) as feeds:
        printed = _printed(_lines(session, feeds, items, selection))
        for item, report in merge(printed, sent.new, is_followed=is_followed):
            if isinstance(report, str):
                click.echo(report, err=True)
                continue
            job = {"job": str(job_ref.key(item))} if len(items) > 1 else {}
            click.echo(output.json_text(job | report))


def _printed(lines: Iterable[tuple[Manifest, LogLine]]) -> Iterator[tuple[Manifest, dict[str, Any] | str]]:
    """Yield the reports in the output of jobs, and the notes of torchq about it."""
    for item, line in lines:
        if (report := job_reports.parse(line)) is not None:
            yield item, report
        elif not line.pod:
            yield item, line.text


class _SentByJobs:
    """The reports that jobs send and do not print."""

    def __init__(self, session: Session, items: list[Manifest], pod: str) -> None:
        """`pod` is the only pod that counts; empty for all pods."""
        keys = [(item, job_ref.key(item)) for item in items]
        self._jobs = [
            (item, SentReports(key.name, partial(api_client.reports_of, session, key), lambda name: pod in ("", name)))
            for item, key in keys
        ]

    def new(self) -> Iterator[tuple[Manifest, dict[str, Any] | str]]:
        """Yield the reports that have come since the last call."""
        for item, sent in self._jobs:
            for report in sent.new():
                yield item, report


def _lines(
    session: Session, feeds: JobFeeds, items: list[Manifest], selection: LogSelection
) -> Iterator[tuple[Manifest, LogLine]]:
    """Yield the lines of several jobs: one job after the other, or, if they are followed, as they come."""
    stop = threading.Event()
    try:
        if len(items) == 1 or not selection.follow:
            for item in items:
                for line in followed_output.follow(session, feeds, job_ref.key(item), selection, stop):
                    yield item, line
        else:
            yield from _merged(session, feeds, items, selection, stop)
    except NoSuchPod as error:
        raise click.UsageError(str(error)) from error
    finally:
        stop.set()


def _merged(
    session: Session, feeds: JobFeeds, items: list[Manifest], selection: LogSelection, stop: threading.Event
) -> Iterator[tuple[Manifest, LogLine]]:
    lines: queue.Queue[tuple[Manifest, LogLine | Exception | None]] = queue.Queue(_BUFFERED)

    def read(item: Manifest) -> None:
        try:
            for line in followed_output.follow(session, feeds, job_ref.key(item), selection, stop):
                lines.put((item, line))
        except Exception as error:
            lines.put((item, error))
        finally:
            lines.put((item, None))

    for item in items:
        threading.Thread(target=read, args=(item,), daemon=True).start()
    reading, failed = len(items), False
    while reading:
        item, line = lines.get()
        if isinstance(line, LogLine):
            yield item, line
        elif line is None:
            reading -= 1
        elif isinstance(line, USER_ERRORS):
            failed = True
            click.echo(f"Error: {format_error(line)}", err=True)
        else:
            raise line
    if failed:
        raise SystemExit(1)


def _print(printer: LinePrinter, line: LogLine, item: Manifest | None, *, labelled: bool) -> None:
    name = f"{item['metadata']['name']}/" if item is not None else ""
    if not line.pod:
        printer.note(f"{name.removesuffix('/')}{': ' if name else ''}{line.text}")
        return
    printer.line(line.text, f"[{name}{line.pod}] " if labelled or name else "", is_over=line.is_over)
