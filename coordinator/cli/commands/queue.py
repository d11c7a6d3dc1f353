"""`torchq queue`: shows and controls tenant queues.

One rule: a queue is its TenantQueue object, and every change is one patch of it. The figures come from the queue store.
"""

from collections.abc import Collection
from typing import Any

import click

from coordinator.cli import api_client, audit_events, output
from coordinator.cli.audit_events import ChangeOptions, change_options
from coordinator.cli.jobs import completion, draining, selected
from coordinator.cli.lazy_group import USER_ERRORS
from coordinator.cli.output import TableOptions
from coordinator.cli.queue_moves import empty
from coordinator.cli.session import Session, pass_session
from coordinator.query.questions import UnknownObject
from coordinator.rbac.permissions import QUEUE_ADMIN, USER
from coordinator.wording import ages, queue_columns, room_holders
from coordinator.wording.amounts import format_amounts
from crds import tenantqueue
from crds.api_resources import TENANT_QUEUES
from crds.errors import InvalidObject, Problem
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
    except api_client.NoCoordinatorKnown:
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
    by_name = {item["metadata"]["name"]: item for item in objects}
    # A queue without an object exists as long as it has work.
    busy = {name for name, item in figures_by_name.items() if item["status"]["pending"] or item["status"]["admitted"]}
    listed = names or sorted(busy | by_name.keys())
    return [_join(name, by_name.get(name), figures_by_name.get(name)) for name in listed]


def _join(name: str, item: Manifest | None, figures: Manifest | None) -> Manifest:
    if item is not None and figures is not None:
        return item | {"status": {**(item.get("status") or {}), **figures["status"]}}
    either = item or figures
    if either is None:
        raise UnknownObject(f"there is no queue {name}")
    return either


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
    spec, status = item["spec"], item.get("status") or {}
    facts = [(column.title.capitalize(), column.text(item)) for column in queue_columns.queue_columns(output.now())]
    if status.get("idleUsage"):
        facts.append(("Idle growth", format_amounts(status["idleUsage"]) + " of the usage"))
    facts += [
        ("Namespaces", ", ".join(spec.get("namespaces") or ()) or "any"),
        ("Aging", f"{spec.get('agingSeconds', 600)} s of waiting for one step of priority"),
        ("Waiting since", ages.duration(status.get("oldestWaitSeconds"))),
    ]
    facts += [("Gang queues", listed)] if (listed := _gang_queues(spec)) else []
    facts += [("Held by", held)] if (held := _held_by(session, name)) else []
    click.echo(output.facts(facts, 15))
    for problem in ineffective(item):
        click.echo(f"note: {problem.field}: {problem.message}; it has another effect than it says")


def _gang_queues(spec: Manifest) -> str:
    """Return which queues of the gang scheduler the jobs of a queue may name; empty if no admin has said so."""
    listed, default = list(spec.get("gangQueues") or ()), spec.get("gangQueue") or ""
    if not listed:
        return f"any ({default} by default)" if default else ""
    return ", ".join(f"{each} (default)" if each == (default or listed[0]) else each for each in listed)


def _held_by(session: Session, name: str) -> str:
    """Return the jobs that hold most of what a queue uses; empty if no coordinator says so."""
    status = api_client.ask(session, lambda queries: queries.queue(name)["status"], lambda _: {})
    return room_holders.format_holders(room_holders.read(session.cluster, status))


def ineffective(item: Manifest) -> tuple[Problem, ...]:
    """Return the limits of a queue, set under an earlier version, that have no effect."""
    spec = {name: item["spec"][name] for name in ("quota", "borrowingLimit", "cohort") if item["spec"].get(name)}
    try:
        queue = tenantqueue.read({"metadata": {"name": item["metadata"]["name"]}, "spec": spec})
    except InvalidObject as error:
        return error.problems
    return tuple(tenantqueue.ineffective(queue))


def _ineffective_limits(session: Session, name: str) -> tuple[errors.FieldCause, ...]:
    """Return the stored limits that make an API server refuse any change of the queue's limits.

    They were set under an earlier version, and the API server's answer does not name them.
    """
    try:
        problems = ineffective(session.cluster.get(TENANT_QUEUES, name))
    except errors.ClusterError:
        return ()
    hint = f"(as stored: torchq queue set-quota {name} sets or --unset removes it)"
    return tuple(errors.FieldCause(problem.field, f"{problem.message} {hint}") for problem in problems)


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
    audit_events.report(session, item, "QueueCreated", f"queue {name} created", change)


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
    _change(session, name, {"weight": weight}, "WeightChanged", f"weight {weight}", change)


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
    policy, change_text = ("HoldAndDrain", "on hold and draining") if drain else ("Hold", "on hold")
    for name in names:
        _change(session, name, {"stopPolicy": policy}, "QueuePaused", change_text, change)
        for line in draining.describe(session, name, output.now()) if drain else ():
            click.echo(line)


@queue.command()
@NAMES
@change_options
@pass_session
def resume(session: Session, names: tuple[str, ...], change: ChangeOptions) -> None:
    """Admit jobs from paused queues again. Several queues in one command start side by side."""
    for name in names:
        _change(session, name, {"stopPolicy": "None"}, "QueueResumed", "open", change)


def _change(
    session: Session, name: str, spec: dict[str, Any], code: str, change_text: str, change: ChangeOptions
) -> None:
    """Patch a queue and report the change."""
    try:
        item = session.cluster.patch(TENANT_QUEUES, name, {"spec": spec}, dry_run=change.dry_run)
    except errors.NotFound as error:
        hint = f"`torchq queue create {name}` makes the queue, also where jobs use it without an object"
        raise errors.NotFound(f"{error}: {hint}") from error
    except errors.Invalid as error:
        raise errors.Invalid(str(error), error.causes + _ineffective_limits(session, name)) from error
    form = f"queue {name} {change_text}" if code in ("QueuePaused", "QueueResumed") else f"queue {name}: {change_text}"
    audit_events.report(session, item, code, form, change)


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
    audit_events.report(session, item, "QueueDeleted", f"queue {name} deleted", change)
