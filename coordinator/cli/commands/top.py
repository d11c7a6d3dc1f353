"""`torchq top`: queues, rates and the next picks, live.

One rule: on a terminal it is a screen that fits; elsewhere it is text, which programs and files take.
"""

import contextlib
import itertools
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial

import click
from rich.console import Console

from coordinator import terminal
from coordinator.cli import api_client, job_ref, output
from coordinator.cli.commands import status as status_command
from coordinator.cli.lazy_group import USER_ERRORS
from coordinator.cli.output import TableOptions
from coordinator.cli.session import Session, pass_session
from coordinator.cli.top import live
from coordinator.cli.top.screen import ScreenReading
from coordinator.follow.job_feed import Inbox, JobFeed
from coordinator.query.questions import Document, Queries
from coordinator.wording import job_state, pick_columns, queue_columns, system_health
from crds.keys import JobKey

MOST_REPORTS = 10
"""The most jobs whose reports one look asks for: a request for each."""


@click.command()
@click.option(
    "--every", default=2.0, show_default=True, type=click.FloatRange(0.2, 3600), help="seconds between screens"
)
@click.option("--count", default=0, type=click.IntRange(min=0), help="number of screens (default: until Ctrl-C)")
@click.option("-n", "picks", default=5, show_default=True, type=click.IntRange(0, 50), help="next picks to show")
@click.option("-A", "--all-namespaces", is_flag=True, help="queues and picks of every namespace")
@click.option("--sort-by", default="", metavar="COLUMN", help="sort queues by this column; -COLUMN sorts in reverse")
@pass_session
def top(session: Session, every: float, count: int, picks: int, all_namespaces: bool, sort_by: str) -> None:
    """Watch queues, rates and the next picks live. On a terminal, q quits and the arrow keys scroll the queues."""
    session = session.with_all_namespaces() if all_namespaces else session
    if sys.stdout.isatty():
        _run_live(session, every, count, picks, TableOptions(sort_by=sort_by))
        return
    before: Document = {}
    for number, _ in enumerate(_ticks(every, count)):
        found, before = _read(session, before, picks)
        click.echo("\n" * bool(number) + _format(found, TableOptions(sort_by=sort_by)))


def _run_live(session: Session, every: float, count: int, picks: int, listing: TableOptions) -> None:
    before: Document = {}
    with JobFeed(session.cluster, session.namespace) as feed:
        jobs, reports = RunningJobs(feed), TrainingReports()

        def read() -> ScreenReading:
            nonlocal before
            found, before = _read(session, before, picks)
            items = jobs.read()
            keys = map(job_ref.key, items)
            training = reports.read(partial(api_client.find, session), keys) if before and items else {}
            ordered = listing.sort(queue_columns.queue_columns(output.now()), found.queues)
            queues = ordered if listing.sort_by else [*queue_columns.busy_first(ordered)]
            return replace(found, queues=queues, jobs=items, training=training)

        live.run(read, every, count, Console(file=terminal.beneath(sys.stdout)))  # `screen` has cleaned all lines


class RunningJobs:
    """The admitted jobs of the namespace, by one watch."""

    def __init__(self, feed: JobFeed) -> None:
        self._feed, self._inbox = feed, Inbox()

    def read(self) -> list[Document]:
        """Return the jobs in the order of their submission; none if this account may not watch them."""
        with contextlib.suppress(*USER_ERRORS):
            items = [item for item in self._feed.all(self._inbox) if job_state.is_admitted(item)]
            return sorted(items, key=job_state.submission_order)
        return []


class TrainingReports:
    """What the training code of jobs reports. A look asks for few jobs, those first that were asked for longest ago.
    The others keep what they have said."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self._found: dict[JobKey, tuple[int, Document]] = {}
        """The reports of each job, with a number that rises with each request."""

    def read(self, find: Callable[[], Queries], jobs: Iterable[JobKey]) -> dict[JobKey, Document]:
        """Return what is known of the jobs. `find` returns the source of queries; once that does not answer, it is not
        asked for another job."""
        self._found = {key: self._found.get(key, (0, {})) for key in jobs}
        with contextlib.suppress(*USER_ERRORS):
            queries = find()
            for key in sorted(self._found, key=lambda key: self._found[key][0])[:MOST_REPORTS]:
                self._found[key] = next(self._numbers), queries.reports(key)
        return {key: reports for key, (_, reports) in self._found.items()}


def _ticks(every: float, count: int) -> Iterator[None]:
    """Yield at once, then every `every` seconds, until `count` ticks or Ctrl-C."""
    for number in itertools.count(1):
        yield
        if number == count:
            return
        try:
            time.sleep(every)
        except KeyboardInterrupt:
            return


def _read(session: Session, before: Document, picks: int) -> tuple[ScreenReading, Document]:
    """Return what the cluster shows now, and its numbers. A part that does not answer is named, and read again next
    time."""
    cluster, lease = {"cluster": session.cluster_name}, status_command.read_lease(session)
    try:
        reading = api_client.find(session)
        numbers = reading.status()
        queues = reading.queues()
        upcoming = reading.next(max(picks, 1))
        items = pick_columns.upcoming(reading, upcoming, picks) if picks else []
    except USER_ERRORS as error:
        return ScreenReading(status=cluster | system_health.summarize(lease, {"redis": str(error)}, {})), {}
    rates = system_health.rates(before, numbers) if before else {}
    status = cluster | system_health.summarize(lease, numbers, rates)
    return ScreenReading(status=status, queues=queues, picks=items, pool=upcoming.get("pool")), numbers


def _format(found: ScreenReading, listing: TableOptions) -> str:
    parts = [
        status_command.format_status(found.status),
        listing.table(queue_columns.queue_columns(output.now()), found.queues) if found.queues else "",
        listing.table(pick_columns.PICK_COLUMNS, found.picks) if found.picks else "",
    ]
    return "\n\n".join(filter(None, parts))
