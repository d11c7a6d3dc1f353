"""`torchq queue`: show and steer the tenant queues.

One rule: a queue is its TenantQueue object; what a command shows is in there, and what it changes is one patch.
"""

from typing import Any

import click

from cluster import errors
from cluster.api import Manifest
from coordinator import output
from coordinator.permissions import QUEUE_ADMIN, USER
from coordinator.session import Session, pass_session
from crds.resources import TENANT_QUEUES, TORCHJOBS

FORM = click.option("-o", "form", type=click.Choice(["json", "yaml"]), help="print whole objects for programs")
WEIGHT = click.IntRange(min=1)


@click.group()
@click.pass_context
def queue(context: click.Context) -> None:
    """Show and steer the tenant queues."""
    context.obj = context.find_object(Session).acting_as(QUEUE_ADMIN)  # type: ignore[union-attr]


@queue.command("list")
@click.argument("names", nargs=-1, metavar="[NAME...]")
@FORM
@click.option("--no-headers", is_flag=True, help="leave the header line out")
@pass_session
def list_queues(session: Session, names: tuple[str, ...], form: str | None, no_headers: bool) -> None:
    """List all queues, or those named: whoever may look at one only has to name it."""
    session = session.acting_as(USER) if names else session
    found = [session.cluster.get(TENANT_QUEUES, each) for each in names] or session.cluster.list(TENANT_QUEUES).items
    items = sorted(found, key=lambda item: str(item["metadata"]["name"]))
    if form:
        output.show({"apiVersion": "v1", "kind": "List", "items": items}, form)
        return
    header = ("NAME", "WEIGHT", "STATE", "PENDING", "ADMITTED", "SHARE", "TARGET", "USAGE", "AGE")
    text = output.columns(header, [_row(item) for item in items])
    click.echo(text.partition("\n")[2] if no_headers else text)


def _row(item: Manifest) -> tuple[object, ...]:
    spec, status = item["spec"], item.get("status") or {}
    quota = spec.get("quota") or {}
    usage = [
        f"{name}={amount}{'/' + str(quota[name]) if name in quota else ''}"
        for name, amount in (status.get("usage") or {}).items()
    ]
    return (
        item["metadata"]["name"],
        spec.get("weight", 1),
        {"None": "Open"}.get(spec.get("stopPolicy", "None"), spec.get("stopPolicy", "None")),
        status.get("pending", 0),
        status.get("admitted", 0),
        status.get("share", "-"),
        status.get("target", "-"),
        ",".join(usage) or "-",
        output.age(item["metadata"]["creationTimestamp"], output.now()),
    )


def _amounts(_context: click.Context, _parameter: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    pairs = [part.partition("=") for value in values for part in value.split(",")]
    for name, equals, amount in pairs:
        if not (name and equals and amount):
            raise click.BadParameter(f"{name!r} is not NAME=QUANTITY, e.g. nvidia.com/gpu=8 or jobs=20")
    return {name: amount for name, _, amount in pairs}


@queue.command()
@click.argument("name")
@click.option(
    "--weight", type=WEIGHT, default=1, show_default=True, help="share against the other queues that have work"
)
@click.option(
    "--quota", multiple=True, callback=_amounts, help="limits: NAME=QUANTITY,... (cpu, memory, nvidia.com/gpu, jobs)"
)
@click.option("--hold", is_flag=True, help="admit nothing from it until `torchq queue resume`")
@pass_session
def create(session: Session, name: str, weight: int, quota: dict[str, str], hold: bool) -> None:
    """Create a queue."""
    spec: dict[str, Any] = {"weight": weight}
    if quota:
        spec["quota"] = quota
    if hold:
        spec["stopPolicy"] = "Hold"
    body = {"apiVersion": TENANT_QUEUES.api_version, "kind": "TenantQueue", "metadata": {"name": name}, "spec": spec}
    session.cluster.create(TENANT_QUEUES, body)
    click.echo(f"queue {name} created")


@queue.command("set-weight")
@click.argument("name")
@click.argument("weight", type=WEIGHT)
@pass_session
def set_weight(session: Session, name: str, weight: int) -> None:
    """Change a queue's weight."""
    session.cluster.patch(TENANT_QUEUES, name, {"spec": {"weight": weight}})
    click.echo(f"queue {name}: weight {weight}")


@queue.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@pass_session
def pause(session: Session, names: tuple[str, ...]) -> None:
    """Admit nothing more from queues; what runs goes on."""
    for name in names:
        session.cluster.patch(TENANT_QUEUES, name, {"spec": {"stopPolicy": "Hold"}})
        click.echo(f"queue {name} on hold")


@queue.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@pass_session
def resume(session: Session, names: tuple[str, ...]) -> None:
    """Admit from paused queues again. Several named at once start side by side."""
    for name in names:
        session.cluster.patch(TENANT_QUEUES, name, {"spec": {"stopPolicy": "None"}})
        click.echo(f"queue {name} open")


@queue.command()
@click.argument("name")
@pass_session
def delete(session: Session, name: str) -> None:
    """Delete a queue that no unfinished job names."""
    found = session.cluster.get(TENANT_QUEUES, name)
    users = [item for item in session.cluster.list(TORCHJOBS).items if _uses(item, name)]
    if users:
        first = users[0]["metadata"]
        raise errors.Conflict(
            f"queue {name} has {len(users)} unfinished jobs, {first['namespace']}/{first['name']} among them; "
            "cancel them or let them end first"
        )
    session.cluster.delete(TENANT_QUEUES, name, uid=found["metadata"]["uid"])
    click.echo(f"queue {name} deleted")


def _uses(item: Manifest, name: str) -> bool:
    policy = item["spec"].get("schedulingPolicy") or {}
    finished = (item.get("status") or {}).get("phase") in ("Succeeded", "Failed")
    return not finished and (policy.get("queue") or item["metadata"]["namespace"]) == name
