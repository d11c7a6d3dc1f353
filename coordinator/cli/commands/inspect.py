"""`torchq next|status` and `torchq job why|position`: what the queues will do, and why a job waits.

One rule: these commands change nothing; the forecast uses the same picker as the coordinator.
"""

import sys
import time
from collections.abc import Callable
from typing import Any

import click

from coordinator.cli import api_client, columns, job_context, job_details, job_growth, job_ref, outlook, output, text
from coordinator.cli.job_details import JobContext
from coordinator.cli.jobs import selected
from coordinator.cli.session import USER_ERRORS, Session, pass_session
from coordinator.follow import deletion
from coordinator.leader.election import VERSION_ANNOTATION
from coordinator.query.documents import Document
from coordinator.query.queries import MOST_FORECAST_PICKS, Queries
from coordinator.rbac.permissions import LEASE
from coordinator.runs.findings import CheckUnavailable
from crds.api_resources import LEASES
from crds.errors import InvalidObject
from crds.torchjob import torchjob
from kube import errors
from kube.api import Manifest

FORM = click.option("-o", "form", type=click.Choice(["json", "yaml"]), help="print for programs")
SILENT_SECONDS = 30.0
"""The age of a Lease at which its holder is no longer named as the leader."""


@click.command()
@selected.jobs_argument
@FORM
@pass_session
def why(session: Session, names: tuple[str, ...], selector: str, form: str | None) -> None:
    """Explain why jobs wait, in numbers."""
    selected.for_each(session, names, selector, lambda item: _show(_locate(session, item), form, text.format_why))


@click.command()
@selected.jobs_argument
@FORM
@pass_session
def position(session: Session, names: tuple[str, ...], selector: str, form: str | None) -> None:
    """Show positions of waiting jobs in queues. Also shows which of the next picks they are."""
    selected.for_each(session, names, selector, lambda item: _show(_locate(session, item), form, text.format_position))


def _show(document: Document, form: str | None, format_text: Callable[[Document], str]) -> None:
    if form:
        output.print_document(document, form)
    else:
        click.echo(format_text(document))


def _locate(session: Session, item: Manifest) -> Document:
    """Return the job's own state, and its position if it waits."""
    if deletion.is_deleting(item):
        return text.describe_deletion(item, job_context.read(session.cluster, item).pods)
    if not text.is_waiting(item):
        is_active = job_ref.is_admitted(item) and not job_ref.is_finished(item)
        context = job_context.read(session.cluster, item) if is_active else JobContext(now=output.now())
        document = job_details.describe(item, context)
        rest = job_growth.read(session, item)
        settled = text.describe_settled(
            item, document["tasks"], document["restarts"].get("notBefore", ""), _if_resumed(session, item)
        )
        if is_active and item["status"].get("phase") != "Running":
            settled |= _too_small(session, item)
        training = job_context.read_reports(session, item, context.pods)
        silence = text.describe_silence(item, training, output.now())
        return settled | ({"rest": rest} if rest else {}) | ({"silence": silence} if silence else {})
    return text.describe_waiting(item, api_client.find(session).job(job_ref.key(item)))


def _too_small(session: Session, item: Manifest) -> Document:
    """Return why the nodes no longer hold an admitted job; empty if they do, or if no coordinator says so."""
    try:
        (found,) = outlook.FeasibilityCheck(session)([torchjob.parse(item)])
    except (CheckUnavailable, InvalidObject):
        return {}
    beyond = [each.message for each in found if each.code in ("ExceedsNodes", "ExceedsPool")]
    return {"tooSmall": beyond} if beyond else {}


def _if_resumed(session: Session, item: Manifest) -> Document | None:
    """Return the forecast for a suspended job if it were resumed now; None if the job is not suspended or holds
    room."""
    if not item["spec"].get("suspend") or job_ref.is_admitted(item) or job_ref.is_finished(item):
        return None
    try:
        return api_client.find(session).job(job_ref.key(item)).get("ifResumed")
    except USER_ERRORS as error:
        return {"unknown": str(error)}


@click.command("next")
@click.option(
    "-n", "count", type=click.IntRange(1, MOST_FORECAST_PICKS), default=20, show_default=True, help="how many picks"
)
@click.option("--roomy", is_flag=True, help="show the order alone, as if the pool had room for everything")
@click.option("-A", "--all-namespaces", is_flag=True, help="no effect: picks are from all namespaces")
@output.table_options
@pass_session
def forecast(session: Session, /, count: int, roomy: bool, all_namespaces: bool, **options: Any) -> None:  # noqa: ARG001
    """Show which jobs would be admitted next. Those that fit now are first. The others go in this order when room is
    free."""
    listing = output.parse_list_options(options)
    queries = api_client.find(session)
    document = queries.next(count, roomy=roomy)
    items = document["items"] if roomy else upcoming(queries, document, count)
    listing.show(columns.pick_columns(), items)
    if not items and document["waiting"]:
        click.echo(
            f"note: none of {document['waiting']} waiting jobs can be picked now, even with room: "
            "torchq job why NAME says why",
            err=True,
        )


def upcoming(queries: Queries, document: Document, count: int) -> list[Document]:
    """Return the picks that fit now and those that follow; `document` has those that fit."""
    fitting = document["items"]
    is_all = len(fitting) >= min(count, document["waiting"])
    return columns.with_later_picks(fitting, [] if is_all else queries.next(count, roomy=True)["items"], count)


@click.command()
@click.option(
    "--seconds",
    default=1.0,
    show_default=True,
    type=click.FloatRange(0, 60),
    help="seconds over which rates are measured; 0: no rates",
)
@FORM
@pass_session
def status(session: Session, seconds: float, form: str | None) -> None:
    """Show the health of the whole system. That is leader, workers, rates, waits, Redis and API server. Exit code 1:
    something is wrong."""
    document = {"cluster": session.cluster_name, **_status(session, seconds)}
    if form:
        output.print_document(document, form)
    else:
        click.echo(text.format_status(document))
    sys.exit(1 if document["trouble"] else 0)


def _status(session: Session, seconds: float) -> Document:
    """Return the health of the system. A part that does not answer is named, and the rest is shown all the same."""
    lease = read_lease(session)
    try:
        queries = api_client.find(session)
        numbers = queries.status()
        rates = _rates(queries, numbers, seconds)
    except USER_ERRORS as error:
        return text.summary(lease, {"redis": str(error)}, {})
    return text.summary(lease, numbers, rates)


def _rates(queries: Queries, before: Document, seconds: float) -> Document:
    if not seconds or "picks" not in before:
        return {}
    time.sleep(seconds)
    return text.rates(before, queries.status())


def read_lease(session: Session) -> Document:
    """Return the leader as the Lease names it, and the error of an API server that does not answer."""
    try:
        document = session.cluster.get(LEASES, LEASE, session.settings.lease_namespace)
    except errors.NotFound:
        return {"apiServer": "", "leader": ""}
    except errors.Forbidden:
        return {"apiServer": ""}
    except errors.ClusterError as error:
        return {"apiServer": str(error)}
    spec = document.get("spec") or {}
    silent = text.seconds_since(spec.get("renewTime"), output.now())
    alive = silent is not None and silent < SILENT_SECONDS
    holder = str(spec.get("holderIdentity") or "") if alive else ""
    version = str((document["metadata"].get("annotations") or {}).get(VERSION_ANNOTATION, "")) if holder else ""
    return {"apiServer": "", "leader": holder, "leaderVersion": version, "renewedSecondsAgo": silent}
