"""`torchq queue`: shows and controls tenant queues.

One rule: a queue is its TenantQueue object, and every change is one patch of it. The figures come from the queue store.
"""

from collections.abc import Collection
from typing import Any

import click

from coordinator.cli import api_client, output
from coordinator.cli.change_options import ChangeOptions, author, change_options
from coordinator.cli.jobs import completion, selected
from coordinator.cli.lazy_group import USER_ERRORS
from coordinator.cli.output import TableOptions
from coordinator.cli.queue_moves import empty
from coordinator.cli.session import Session, pass_session
from coordinator.control import queue_changes
from coordinator.query.questions import UnknownObject
from coordinator.query.remote_queries import NoCoordinatorKnown
from coordinator.rbac.permissions import QUEUE_ADMIN, USER
from coordinator.wording import draining, queue_columns, queue_facts, room_holders
from crds import tenantqueue
from crds.api_resources import TENANT_QUEUES, TORCHJOBS
from kube import errors
from kube.api import Manifest

GANG_QUEUES = "queue of the gang scheduler that its jobs may name (default: any)"
WEIGHT = click.IntRange(min=1)
NAME = click.argument("name", shell_complete=completion.queues)
NAMES = click.argument("names", nargs=-1, required=True, metavar="NAME...", shell_complete=completion.queues)


@click.group()
@click.pass_context
def queue(context: click.Context) -> None:
    """Show and control tenant queues."""
    context.obj = context.find_object(Session).with_role(QUEUE_ADMIN)  # type: ignore[union-attr]


@queue.command("list")
@click.argument("names", nargs=-1, metavar="[NAME...]")
@click.option("-A", "--all-namespaces", is_flag=True, help="the queues of every namespace")
@output.table_options
@pass_session
def list_queues(session: Session, names: tuple[str, ...], all_namespaces: bool, listing: TableOptions) -> None:
    """List queues with shares and usage. Without NAME, all queues are listed; where this account may not read them,
    those of the namespace."""
    session = session.with_all_namespaces() if all_namespaces else session
    try:
        items = _queues_with_figures(session, names)
    except errors.Forbidden as refusal:
        if names:
            raise
        try:
            items = _queues_with_figures(session, (session.namespace,))
        except (errors.Forbidden, errors.NotFound, UnknownObject):
            raise refusal from None
        click.echo(f"note: the queue of namespace {session.namespace} alone; other queues by their names", err=True)
    listing.show(queue_columns.queue_columns(output.now()), items)


def _queues_with_figures(session: Session, names: tuple[str, ...]) -> list[Manifest]:
    """Read TenantQueues with the newest figures in their status.

    If either objects or figures cannot be read, a note says so. An account that may read only one queue has to name
    that queue.
    """
    session = session.with_role(USER) if names else session
    try:
        figures_by_name = {item["metadata"]["name"]: item for item in api_client.find(session).queues()}
    except NoCoordinatorKnown:
        return _objects(session, names, ())  # their status has the figures that a coordinator wrote last
    except USER_ERRORS as error:
        items = _objects(session, names, ())
        click.echo(f"note: the figures are those of the objects' status, which may be old: {error}", err=True)
        return items
    try:
        objects = _objects(session, names, figures_by_name)
    except (errors.Forbidden, errors.Unreachable, errors.Misconfigured) as error:
        click.echo(f"note: the settings are those of the coordinator, not of the objects: {error}", err=True)
        objects = list(figures_by_name.values())
    return queue_facts.with_figures(objects, figures_by_name, names)


def _objects(session: Session, names: tuple[str, ...], known_names: Collection[str]) -> list[Manifest]:
    """Read the TenantQueues of these names, or all. A named queue may have no object if its figures are known."""
    if not names:
        return sorted(session.cluster.list(TENANT_QUEUES).items, key=lambda item: str(item["metadata"]["name"]))
    found = []
    for name in names:
        try:
            found.append(session.cluster.get(TENANT_QUEUES, name))
        except errors.NotFound:
            if name not in known_names:
                raise
    return found


@queue.command()
@NAME
@click.option("-o", "form", type=click.Choice(["json", "yaml"]), help="print the whole object for programs")
@pass_session
def show(session: Session, name: str, form: str | None) -> None:
    """Show one queue in detail. The output has settings, figures and the first job."""
    (item,) = _queues_with_figures(session, (name,))
    if form:
        output.print_document(item, form)
        return
    facts = [*queue_facts.facts(item, output.now())]
    facts += [("Held by", held)] if (held := _held_by(session, name)) else []
    click.echo(output.facts(facts, 15))
    for note in queue_facts.notes(item):
        click.echo(note)


def _held_by(session: Session, name: str) -> str:
    """Return the jobs that hold most of what a queue uses; empty if no coordinator says so."""
    status = api_client.ask(session, lambda queries: queries.queue(name)["status"], lambda _: {})
    return room_holders.format_holders(room_holders.read(session.cluster, status))


def amounts(_context: click.Context, _parameter: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    """Parse NAME=QUANTITY,... into a map."""
    pairs = [part.partition("=") for value in values for part in value.split(",")]
    for name, equals, amount in pairs:
        if not (name and equals and amount):
            raise click.BadParameter(f"{name!r} is not NAME=QUANTITY, e.g. nvidia.com/gpu=8 or jobs=20")
        if problem := tenantqueue.limit_problem(name, amount):
            raise click.BadParameter(problem)
    return {name: amount for name, _, amount in pairs}


@queue.command()
@click.argument("name")
@click.option("--weight", type=WEIGHT, default=1, show_default=True, help="share relative to other queues with work")
@click.option(
    "--quota", multiple=True, callback=amounts, help="limits: NAME=QUANTITY,... (cpu, memory, nvidia.com/gpu, jobs)"
)
@click.option("--cohort", default="", help="queues of one cohort use each other's unused quota")
@click.option("--borrowing-limit", multiple=True, callback=amounts, help="the most it may borrow: NAME=QUANTITY,...")
@click.option("--strict", is_flag=True, help="StrictFIFO: no job passes the first job")
@click.option("--namespace", "namespaces", multiple=True, help="namespace whose jobs may use it (default: all)")
@click.option(
    "--gang-queue", "gang_queues", multiple=True, metavar="NAME", help=f"{GANG_QUEUES}; the first is the default"
)
@click.option("--hold", is_flag=True, help="admit no jobs from it until `torchq queue resume`")
@change_options
@pass_session
def create(session: Session, /, name: str, change: ChangeOptions, **options: Any) -> None:
    """Create a queue."""
    body = {"apiVersion": TENANT_QUEUES.api_version, "kind": "TenantQueue", "metadata": {"name": name}}
    item = session.cluster.create(TENANT_QUEUES, body | {"spec": _spec(**options)}, dry_run=change.dry_run)
    author(session, change).report(item, "QueueCreated", f"queue {name} created")


def _spec(weight: int, hold: bool, strict: bool, **more: Any) -> dict[str, Any]:
    fields = {
        "quota": more["quota"],
        "cohort": more["cohort"],
        "borrowingLimit": more["borrowing_limit"],
        "namespaces": list(more["namespaces"]),
        "gangQueues": list(more["gang_queues"]),
        "ordering": "StrictFIFO" if strict else "",
        "stopPolicy": "Hold" if hold else "",
    }
    return {"weight": weight} | {field: value for field, value in fields.items() if value}


@queue.command("set-weight", context_settings={"ignore_unknown_options": True})  # -3 is a weight, and is refused as one
@NAME
@click.argument("weight", type=WEIGHT)
@change_options
@pass_session
def set_weight(session: Session, name: str, weight: int, change: ChangeOptions) -> None:
    """Change a queue's weight."""
    author(session, change).change_queue(name, queue_changes.set_weight(name, weight))


@queue.command("set-quota")
@NAME
@click.argument("quota", nargs=-1, callback=amounts, metavar="[NAME=QUANTITY]...")
@click.option("--unset", multiple=True, metavar="NAME", help="remove this limit")
@change_options
@pass_session
def set_quota(
    session: Session, name: str, quota: dict[str, str], unset: tuple[str, ...], change: ChangeOptions
) -> None:
    """Change some limits of a queue. The other limits stay. A queue above a lowered limit drains."""
    if not quota and not unset:
        raise click.UsageError("name a limit, as in nvidia.com/gpu=8, or one to --unset")
    summary = " ".join([*(f"{limit}={amount}" for limit, amount in quota.items()), *(f"-{limit}" for limit in unset)])
    _change(session, name, {"quota": {**dict.fromkeys(unset), **quota}}, "QuotaChanged", f"quota {summary}", change)


@queue.command("set-cohort")
@NAME
@click.argument("cohort", required=False)
@click.option("--none", "leave", is_flag=True, help="leave the cohort")
@click.option("--borrowing-limit", multiple=True, callback=amounts, help="the most it may borrow: NAME=QUANTITY,...")
@change_options
@pass_session
def set_cohort(
    session: Session,
    name: str,
    cohort: str | None,
    leave: bool,
    borrowing_limit: dict[str, str],
    change: ChangeOptions,
) -> None:
    """Put a queue into a cohort. Queues of a cohort use each other's unused quota."""
    if bool(cohort) == leave:
        raise click.UsageError("name a cohort, or --none")
    spec: dict[str, Any] = {"cohort": cohort}
    if borrowing_limit or leave:
        spec["borrowingLimit"] = borrowing_limit or None
    change_text = f"cohort {cohort}" if cohort else "in no cohort"
    _change(session, name, spec, "CohortChanged", change_text, change)


@queue.command("set-gang-queues")
@NAME
@click.argument("gang_queues", nargs=-1, metavar="[GANG-QUEUE]...")
@click.option("--default", "default", metavar="GANG-QUEUE", help="the one of jobs that name none (default: the first)")
@click.option("--any", "unlimited", is_flag=True, help="its jobs may name any")
@change_options
@pass_session
def set_gang_queues(
    session: Session,
    name: str,
    gang_queues: tuple[str, ...],
    default: str | None,
    unlimited: bool,
    change: ChangeOptions,
) -> None:
    """List the gang queues that its jobs may name."""
    if bool(gang_queues) == unlimited:
        raise click.UsageError("name the queues of the gang scheduler, or --any")
    listed = ", ".join(gang_queues) or "any"
    change_text = f"gang queues {listed}" + (f", {default} by default" if default else "")
    spec = {"gangQueues": list(gang_queues) or None, "gangQueue": default}
    _change(session, name, spec, "GangQueuesChanged", change_text, change)


@queue.command()
@NAMES
@click.option("--drain", is_flag=True, help="also suspend admitted jobs; they are first on resume")
@change_options
@pass_session
def pause(session: Session, names: tuple[str, ...], drain: bool, change: ChangeOptions) -> None:
    """Stop admitting jobs from queues. Admitted jobs continue, unless --drain suspends them: it prints until when at
    most each of them holds its room."""
    for name in names:
        author(session, change).change_queue(name, queue_changes.pause(name, drain=drain))
        for line in _drained(session, name) if drain else ():
            click.echo(line)


def _drained(session: Session, name: str) -> list[str]:
    """Return a line about each job for which the drain of a queue waits."""
    items = (item for page in session.cluster.pages(TORCHJOBS) for item in page.items)
    try:
        return draining.describe(items, name, _longest_grace(session), output.now())
    except errors.Forbidden as error:
        return [f"the jobs that it waits for are not known: {error}"]


def _longest_grace(session: Session) -> float:
    """Return the setting of the coordinator; of this command, if no coordinator answers."""
    try:
        return float(api_client.coordinator(session)("/v1/settings")["settings"]["longest_grace"])
    except (*USER_ERRORS, KeyError, TypeError, ValueError):
        return session.settings.longest_grace


@queue.command()
@NAMES
@change_options
@pass_session
def resume(session: Session, names: tuple[str, ...], change: ChangeOptions) -> None:
    """Admit jobs from paused queues again. Several queues in one command start side by side."""
    for name in names:
        author(session, change).change_queue(name, queue_changes.resume(name))


def _change(
    session: Session, name: str, spec: dict[str, Any], code: str, change_text: str, change: ChangeOptions
) -> None:
    """Patch a queue and report the change."""
    author(session, change).change_queue(name, queue_changes.edit(name, spec, code, change_text))


@queue.command()
@NAME
@click.option("--move-to", default="", metavar="QUEUE", help="first move its waiting jobs to this queue")
@selected.anyway_option
@change_options
@pass_session
def delete(session: Session, name: str, move_to: str, anyway: bool, change: ChangeOptions) -> None:
    """Delete a queue that no unfinished job names."""
    item = session.cluster.get(TENANT_QUEUES, name)
    empty(session, name, move_to, change, anyway=anyway)
    session.cluster.delete(TENANT_QUEUES, name, uid=item["metadata"]["uid"], dry_run=change.dry_run)
    author(session, change).report(item, "QueueDeleted", f"queue {name} deleted")
