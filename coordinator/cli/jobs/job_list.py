"""`torchq job list`: the jobs of a namespace, why they wait, and how they ended.

One rule: one request for the jobs and one for the places of all waiting jobs. Without a coordinator the list is shown
without places.
"""

import gc
import time
from collections.abc import Iterator
from datetime import timedelta

import click

from coordinator import terminal
from coordinator.cli import api_client, output
from coordinator.cli.jobs import completion
from coordinator.cli.lazy_group import USER_ERRORS
from coordinator.cli.output import TableOptions
from coordinator.cli.session import Session, pass_session
from coordinator.follow.job_feed import Inbox, JobFeed
from coordinator.wording import job_columns, job_state
from crds import timestamps
from crds.api_resources import TORCHJOBS
from kube.api import Manifest

PHASES = ("Pending", "Queued", "Admitted", "Running", "Suspended", "Succeeded", "Failed", "Cancelled")
ENDS = frozenset({"Succeeded", "Failed", "Cancelled"})
DAY = timedelta(days=1)
PROGRAMS = ("json", "yaml")
"""The forms for programs, which are always complete."""
AGE_SECONDS = 5.0
"""How often a watched list is shown again although no job has changed: ages and places have."""
SETTLE_SECONDS = 0.5
"""How long a watched list waits after a change for others that come with it."""


@click.command("list")
@click.option("-A", "--all-namespaces", is_flag=True, help="jobs of every namespace")
@click.option("--queue", shell_complete=completion.queues, help="only jobs of this queue")
@click.option(
    "--phase",
    "phases",
    multiple=True,
    type=click.Choice(PHASES, case_sensitive=False),
    help="only jobs in this phase; several times: in one of them",
)
@click.option("-l", "--selector", default="", metavar="LABELS", help="only jobs with these labels")
@click.option("--all-time", is_flag=True, help="also jobs that ended more than a day ago")
@click.option("-w", "--watch", is_flag=True, help="show the list again with each change, until Ctrl-C")
@output.table_options
@pass_session
def list_jobs(
    session: Session,
    all_namespaces: bool,
    queue: str | None,
    phases: tuple[str, ...],
    selector: str,
    all_time: bool,
    watch: bool,
    listing: TableOptions,
) -> None:
    """List jobs in the order of submission.

    Jobs that ended more than a day ago are left out, unless --all-time or --phase asks for them.

    The last column says for a job that waits its place in its queue and the reason, and for one that failed the cause.

    \b
    torchq job list --phase Running --phase Queued
    torchq job list -A --queue team-a -w
    """
    session = session.with_all_namespaces() if all_namespaces else session
    lists = (_watched if watch else _read)(session, "" if all_namespaces else session.namespace, selector)
    for number, found in enumerate(lists):
        if watch:
            terminal.begin_screen(is_first=not number)
        items = [item for item in found if queue is None or job_state.queue_of(item) == queue]
        items = [item for item in items if not phases or job_columns.phase(item) in phases]
        items.sort(key=job_state.submission_order)
        is_whole = all_time or listing.form in PROGRAMS or ENDS.intersection(phases)
        recent = items if is_whole else _recent(items)
        listing.show(job_columns.job_columns(output.now(), _places(session, recent)), recent)
        if len(recent) < len(items) and not watch:
            click.echo(f"{len(items) - len(recent)} more ended over a day ago: --all-time shows them", err=True)


def _recent(items: list[Manifest]) -> list[Manifest]:
    """Return the jobs without the jobs that ended more than a day ago."""
    since = output.now() - DAY
    ends = ((item, (item.get("status") or {}).get("completionTime")) for item in items)
    return [item for item, ended in ends if ended is None or timestamps.parse(ended) >= since]


def _read(session: Session, namespace: str, selector: str) -> Iterator[list[Manifest]]:
    items = session.cluster.list(TORCHJOBS, namespace, label_selector=selector).items
    gc.freeze()  # they live as long as the command; collections that walk through all of them doubled its time
    yield items


def _watched(session: Session, namespace: str, selector: str) -> Iterator[list[Manifest]]:
    """Yield the list again and again: after changes, and because time passes."""
    with JobFeed(session.cluster, namespace, label_selector=selector) as feed:
        inbox = Inbox()
        while True:
            yield feed.all(inbox)
            if inbox.take(AGE_SECONDS) is not None:
                time.sleep(SETTLE_SECONDS)
                while inbox.take(0) is not None:
                    pass


def _places(session: Session, items: list[Manifest]) -> dict[str, tuple[int, int]]:
    """Return the place of each waiting job and the number of jobs in its queue, by uid; empty without a coordinator."""
    queues = {job_state.queue_of(item) for item in items if job_columns.is_in_order(item)}
    if not queues:
        return {}
    try:
        return job_columns.places_by_uid(api_client.find(session).places(queues))
    except (*USER_ERRORS, KeyError, TypeError, ValueError):
        return {}
