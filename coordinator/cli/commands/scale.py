"""`torchq scale plan`: which elastic jobs would grow into idle room, and which would give back to whom.

One rule: the plan is that of the coordinator's own function.
"""

from typing import Any

import click

from coordinator.cli import api_client, output
from coordinator.cli.session import Session, pass_session
from coordinator.query.questions import ANOTHER, Document, parse_document

HEADER = ("JOB", "QUEUE", "WORKERS", "WANTED", "IDLE", "MIN", "MAX", "TO", "REASON", "MESSAGE")
PATH = "/v1/scale/plan"


@click.group()
def scale() -> None:
    """Show how the coordinator sizes elastic jobs. `torchq job scale` changes the size of one job."""


@scale.command()
@click.option("-A", "--all-namespaces", is_flag=True, help="name jobs of every namespace")
@output.FORM
@pass_session
def plan(session: Session, all_namespaces: bool, form: str | None) -> None:
    """Show which elastic jobs would be resized. It says who gives back to whom, and why other jobs stay as they are."""
    session = session.with_all_namespaces() if all_namespaces else session
    output.show(parse_document(api_client.coordinator(session)(PATH)), form, format_plan)


def format_plan(document: Document) -> str:
    """Format a plan: a line for each elastic job, those that change first."""
    lines = [(*_size(each), each["to"], each["reason"], _message(each)) for each in document["resizes"]]
    lines += [(*_size(each), "-", each["code"] or "-", each["message"]) for each in document["unchanged"]]
    table = output.columns(HEADER, lines) if lines else "no running job has autoscale: Idle"
    claims = [f"kept for {claim['job']}: what is given back in queue {claim['queue']}" for claim in document["claims"]]
    notes = ["note: the setting autoscale is off: nothing of this is done"] if document["autoscale"] == "off" else []
    if not document["fromLeader"]:
        notes.append("note: this coordinator does not lead: it does not know for how long room was idle")
    return "\n".join([table, *claims, *notes])


def _message(resize: Document) -> str:
    """Return what a resize is for. The sentence names jobs of the same namespace only; an admin may know the others."""
    receiver, message = resize["for"], str(resize["message"])
    if receiver is None or receiver == ANOTHER or receiver in message:
        return message
    return f"{message}: {receiver} of queue {resize['forQueue']}"


def _size(item: Document) -> tuple[Any, ...]:
    return tuple(item[name] for name in ("job", "queue", "workers", "wanted", "idle", "min", "max"))
