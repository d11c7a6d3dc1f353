"""`torchq scale plan`: which elastic jobs would grow into idle room, and which would give back to whom.

One rule: the command changes nothing, and the plan is that of the coordinator's own function.
"""

from typing import Any

import click

from coordinator.cli import api_client, output
from coordinator.cli.output import Document
from coordinator.cli.session import Session, pass_session
from coordinator.query.queries import parse_document

HEADER = ("JOB", "QUEUE", "WORKERS", "WANTED", "IDLE", "MIN", "MAX", "TO", "REASON", "MESSAGE")
PATH = "/v1/scale/plan"


@click.group()
def scale() -> None:
    """Show how the coordinator sizes elastic jobs. `torchq job scale` changes the size of one job."""


@scale.command()
@click.option("-o", "form", type=click.Choice(["json", "yaml"]), help="print for programs")
@pass_session
def plan(session: Session, form: str | None) -> None:
    """Show which elastic jobs would be resized. It says who gives back to whom, and why other jobs stay as they are."""
    document = parse_document(api_client.coordinator(session)(PATH))
    if form:
        output.print_document(document, form)
        return
    click.echo(format_plan(document))


def format_plan(document: Document) -> str:
    """Format a plan: a line for each elastic job, those that change first."""
    lines = [*map(_resize, document["resizes"]), *map(_unchanged, document["unchanged"])]
    table = output.columns(HEADER, lines) if lines else "no running job has autoscale: Idle"
    claims = [f"kept for {claim['job']}: what is given back in queue {claim['queue']}" for claim in document["claims"]]
    return "\n".join([table, *claims, *_notes(document)])


def _notes(document: Document) -> list[str]:
    notes = []
    if document["autoscale"] == "off":
        notes.append("note: the setting autoscale is off: nothing of this is done")
    if not document["fromLeader"]:
        notes.append("note: this coordinator does not lead: it does not know for how long room was idle")
    return notes


def _size(item: Document) -> tuple[Any, ...]:
    return tuple(item[name] for name in ("job", "queue", "workers", "wanted", "idle", "min", "max"))


def _resize(item: Document) -> tuple[Any, ...]:
    return (*_size(item), item["to"], item["reason"], item["message"])


def _unchanged(item: Document) -> tuple[Any, ...]:
    return (*_size(item), "-", item["code"] or "-", item["message"])
