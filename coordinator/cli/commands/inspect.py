"""`torchq next`, `torchq pool` and `torchq job why|position`: what the queues will do, what is free, and why a job
waits.

One rule: the forecast uses the same picker as the coordinator.
"""

import click

from coordinator.cli import api_client, output
from coordinator.cli.jobs import selected
from coordinator.cli.jobs.selected import JobChoice
from coordinator.cli.output import TableOptions
from coordinator.cli.session import Session, pass_session
from coordinator.cli.session_reader import SessionReader
from coordinator.query.questions import MOST_FORECAST_PICKS, Document, parse_document
from coordinator.wording import explanations, job_answers, pick_columns, pool_columns
from kube.api import Manifest

POOL = "/v1/pool"


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
    known = job_answers.read_known(SessionReader(session), item, output.now())
    return explanations.describe(item, known)


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
    items = document["items"] if roomy else pick_columns.upcoming(queries, document, count)
    listing.show(pick_columns.PICK_COLUMNS, items)
    if not items and document["waiting"]:
        click.echo(pick_columns.none_fits(document), err=True)


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
        click.echo(pool_columns.NOT_LEADERS, err=True)
