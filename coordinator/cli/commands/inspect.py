"""`torchq next`, `torchq pool` and `torchq job why|position`: what the queues will do, what is free, and why a job
waits.

One rule: the forecast uses the same picker as the coordinator.
"""

import click

from coordinator.cli import api_client, job_context, job_ref, outlook, output
from coordinator.cli.jobs import holders, selected
from coordinator.cli.jobs.selected import JobChoice
from coordinator.cli.output import TableOptions
from coordinator.cli.session import Session, pass_session
from coordinator.follow import deletion
from coordinator.query.questions import MOST_FORECAST_PICKS, Document, Queries, parse_document
from coordinator.runs.submission_findings import CheckUnavailable
from coordinator.wording import explanations, job_details, job_state, pick_columns, pool_columns
from coordinator.wording.job_details import JobContext
from crds.errors import InvalidObject
from crds.torchjob import torchjob
from kube import errors
from kube.api import Manifest

POOL = "/v1/pool"
NOT_LEADERS = "note: not the leader's answer: of jobs whose pods are on no node yet, it may place some on other nodes"


@click.command()
@selected.jobs_argument
@output.FORM
@pass_session
def why(session: Session, jobs: JobChoice, form: str | None) -> None:
    """Explain why jobs wait, in numbers."""
    jobs.for_each(session, lambda item: output.show(_locate(session, item), form, explanations.format_why))


@click.command()
@selected.jobs_argument
@output.FORM
@pass_session
def position(session: Session, jobs: JobChoice, form: str | None) -> None:
    """Show positions of waiting jobs in queues. Also shows which of the next picks they are."""
    jobs.for_each(session, lambda item: output.show(_locate(session, item), form, explanations.format_position))


def _locate(session: Session, item: Manifest) -> Document:
    """Return the job's own state, and its position if it waits."""
    if deletion.is_deleting(item):
        return explanations.describe_deletion(item, job_context.read(session.cluster, item).pods)
    if not explanations.is_waiting(item):
        is_active = job_state.is_admitted(item) and not job_state.is_finished(item)
        context = job_context.read(session.cluster, item) if is_active else JobContext(now=output.now())
        document = job_details.describe(item, context)
        rest = job_context.read_growth(session, item)
        settled = explanations.describe_settled(
            item, document["tasks"], document["restarts"].get("notBefore", ""), _if_resumed(session, item)
        )
        if is_active and item["status"].get("phase") != "Running":
            settled |= _too_small(session, item)
        training = job_context.read_reports(session, item, context.pods)
        silence = explanations.describe_silence(item, training, output.now())
        parts = {"rest": rest, "silence": silence, "sharing": explanations.describe_sharing(context.pods)}
        return settled | {name: part for name, part in parts.items() if part}
    return explanations.describe_waiting(item, holders.read(session, _place(session, item)))


def _place(session: Session, item: Manifest) -> Document:
    """Return the position of a job. What the status of the job says has to do where no coordinator tells more."""
    try:
        return api_client.find(session).job(job_ref.key(item))
    except (errors.Forbidden, api_client.Withheld) as error:
        click.echo(f"note: {error}", err=True)
        return {"state": "absent"}


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
    if not item["spec"].get("suspend") or job_state.is_admitted(item) or job_state.is_finished(item):
        return None
    key = job_ref.key(item)
    return api_client.ask(
        session, lambda queries: queries.job(key).get("ifResumed"), lambda error: {"unknown": str(error)}
    )


@click.command("next")
@click.option(
    "-n", "count", type=click.IntRange(1, MOST_FORECAST_PICKS), default=20, show_default=True, help="how many picks"
)
@click.option("--roomy", is_flag=True, help="show the order alone, as if the pool had room for everything")
@click.option("-A", "--all-namespaces", is_flag=True, help="name jobs of every namespace")
@output.table_options
@pass_session
def forecast(session: Session, count: int, roomy: bool, all_namespaces: bool, listing: TableOptions) -> None:
    """Show which jobs would be admitted next. Those that fit now are first. The others go in this order when room is
    free. Jobs of other namespaces are named with -A."""
    queries = api_client.find(session.with_all_namespaces() if all_namespaces else session)
    document = queries.next(count, roomy=roomy)
    items = document["items"] if roomy else upcoming(queries, document, count)
    listing.show(pick_columns.PICK_COLUMNS, items)
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
    return pick_columns.with_later_picks(fitting, [] if is_all else queries.next(count, roomy=True)["items"], count)


@click.command()
@output.table_options
@pass_session
def pool(session: Session, listing: TableOptions) -> None:
    """Show what is free on nodes. A row is about alike nodes: what is free, the largest pod that fits, and what is
    free in fragments, which a pod of a whole node cannot use."""
    document = parse_document(api_client.coordinator(session)(POOL))
    items = listing.sort(pool_columns.POOL_COLUMNS, document["items"])
    if listing.form in ("json", "yaml"):
        output.print_document(document | {"items": items}, listing.form)
        return
    if not items:
        click.echo(document["message"])
        return
    listing.show(pool_columns.POOL_COLUMNS, items)
    if document["source"] != "leader":
        click.echo(NOT_LEADERS, err=True)
