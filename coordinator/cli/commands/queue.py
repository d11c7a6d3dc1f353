"""`torchq queue`: show and steer the tenant queues.

One rule: a queue is its TenantQueue object: every change is one patch of it. The figures beside it are the queues' own.
"""

from collections.abc import Collection
from typing import Any

import click

from coordinator.cli import api_client, audit_events, columns, output
from coordinator.cli.audit_events import Change, changing
from coordinator.cli.queue_moves import empty
from coordinator.cli.session import SHOWN, Session, pass_session
from coordinator.query.queries import NotKnown
from coordinator.rbac.permissions import QUEUE_ADMIN, USER
from crds import tenantqueue
from crds.api_resources import TENANT_QUEUES
from crds.errors import InvalidObject, Problem
from kube import errors
from kube.api import Manifest

WEIGHT = click.IntRange(min=1)
NAMES = click.argument("names", nargs=-1, required=True, metavar="NAME...")


@click.group()
@click.pass_context
def queue(context: click.Context) -> None:
    """Show and steer the tenant queues."""
    context.obj = context.find_object(Session).acting_as(QUEUE_ADMIN)  # type: ignore[union-attr]


@queue.command("list")
@click.argument("names", nargs=-1, metavar="[NAME...]")
@click.option("-A", "--all-namespaces", is_flag=True, help="queues belong to no namespace: all are listed anyway")
@output.listing
@pass_session
def list_queues(session: Session, /, names: tuple[str, ...], all_namespaces: bool, **options: Any) -> None:  # noqa: ARG001
    """List all queues, or those named: weight, share against target, lag, who waits, what is used."""
    items = _figured(session, names)
    output.asked(options).show(columns.queue_columns(output.now()), items)


def _figured(session: Session, names: tuple[str, ...]) -> list[Manifest]:
    """TenantQueues with the newest figures in their status. One of the two may be missing, and is then told. Whoever
    may look at one queue only has to name it."""
    session = session.acting_as(USER) if names else session
    try:
        board = {each["metadata"]["name"]: each for each in api_client.find(session).queues()}
    except api_client.NoneKnown:
        return _objects(session, names, ())  # whose status has what a coordinator wrote there last
    except SHOWN as error:
        found = _objects(session, names, ())
        click.echo(f"note: figures are what the queues said last: {error}", err=True)
        return found
    try:
        objects = _objects(session, names, board)
    except (errors.Forbidden, errors.Unreachable, errors.Misconfigured) as error:
        click.echo(f"note: settings are those in force: {error}", err=True)
        objects = list(board.values())
    known = {each["metadata"]["name"]: each for each in objects}
    # A queue that nobody created is there as long as it has work.
    busy = {name for name, each in board.items() if each["status"]["pending"] or each["status"]["admitted"]}
    wanted = names or sorted(busy | known.keys())
    return [_joined(name, known.get(name), board.get(name)) for name in wanted]


def _joined(name: str, item: Manifest | None, figures: Manifest | None) -> Manifest:
    if item is None or figures is None:
        found = item or figures
        if found is None:
            raise NotKnown(f"there is no queue {name}")
        return found
    return item | {"status": {**(item.get("status") or {}), **figures["status"]}}


def _objects(session: Session, names: tuple[str, ...], known: Collection[str]) -> list[Manifest]:
    """The TenantQueues of these names, or all; one that nobody created may be missing if the queues know it."""
    if names:
        return [item for each in names if (item := _object(session, each, known)) is not None]
    return sorted(session.cluster.list(TENANT_QUEUES).items, key=lambda item: str(item["metadata"]["name"]))


def _object(session: Session, name: str, known: Collection[str]) -> Manifest | None:
    try:
        return session.cluster.get(TENANT_QUEUES, name)
    except errors.NotFound:
        if name in known:
            return None
        raise


@queue.command()
@click.argument("name")
@click.option("-o", "form", type=click.Choice(["json", "yaml"]), help="print the whole object for programs")
@pass_session
def show(session: Session, name: str, form: str | None) -> None:
    """Show one queue: settings, figures, who is first."""
    (item,) = _figured(session, (name,))
    if form:
        output.show(item, form)
        return
    spec, status = item["spec"], item.get("status") or {}
    facts = [(column.title.capitalize(), column.text(item)) for column in columns.queue_columns(output.now())]
    facts += [
        ("Namespaces", ", ".join(spec.get("namespaces") or ()) or "any"),
        ("Aging", f"{spec.get('agingSeconds', 600)} s of waiting for one step of priority"),
        ("Waiting since", output.duration(status.get("oldestWaitSeconds"))),
    ]
    for title, value in facts:
        click.echo(f"{title + ':':<15}{value}")
    for problem in ineffective(item):
        click.echo(f"note: {problem.field}: {problem.message}; until it is mended this limit does not do what it says")


def ineffective(item: Manifest) -> tuple[Problem, ...]:
    """The limits of a queue, made under an earlier version, that do not do what they say."""
    spec = {name: item["spec"][name] for name in ("quota", "borrowingLimit", "cohort") if item["spec"].get(name)}
    try:
        queue = tenantqueue.read({"metadata": {"name": item["metadata"]["name"]}, "spec": spec})
    except InvalidObject as error:
        return error.problems
    return tuple(tenantqueue.ineffective(queue))


def _stored_before(session: Session, name: str) -> tuple[errors.FieldCause, ...]:
    """The limits of a queue, made under an earlier version, for which an API server refuses any change of its limits.
    It does not say which they are."""
    try:
        found = ineffective(session.cluster.get(TENANT_QUEUES, name))
    except errors.ClusterError:
        return ()
    hint = f"(as stored: torchq queue set-quota {name} sets or --unset removes it)"
    return tuple(errors.FieldCause(each.field, f"{each.message} {hint}") for each in found)


def amounts(_context: click.Context, _parameter: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    """NAME=QUANTITY,... as a map."""
    pairs = [part.partition("=") for value in values for part in value.split(",")]
    for name, equals, amount in pairs:
        if not (name and equals and amount):
            raise click.BadParameter(f"{name!r} is not NAME=QUANTITY, e.g. nvidia.com/gpu=8 or jobs=20")
        if problem := tenantqueue.limit_problem(name, amount):
            raise click.BadParameter(problem)
    return {name: amount for name, _, amount in pairs}


@queue.command()
@click.argument("name")
@click.option(
    "--weight", type=WEIGHT, default=1, show_default=True, help="share against the other queues that have work"
)
@click.option(
    "--quota", multiple=True, callback=amounts, help="limits: NAME=QUANTITY,... (cpu, memory, nvidia.com/gpu, jobs)"
)
@click.option("--cohort", default="", help="queues of one cohort use each other's unused quota")
@click.option("--borrowing-limit", multiple=True, callback=amounts, help="the most it may borrow: NAME=QUANTITY,...")
@click.option("--strict", is_flag=True, help="StrictFIFO: nothing goes before the first job")
@click.option("--namespace", "namespaces", multiple=True, help="whose jobs may use it (default: everybody's)")
@click.option("--hold", is_flag=True, help="admit nothing from it until `torchq queue resume`")
@changing
@pass_session
def create(session: Session, /, name: str, dry_run: bool, reason: str, **asked: Any) -> None:
    """Create a queue."""
    body = {"apiVersion": TENANT_QUEUES.api_version, "kind": "TenantQueue", "metadata": {"name": name}}
    made = session.cluster.create(TENANT_QUEUES, body | {"spec": _spec(**asked)}, dry_run=dry_run)
    audit_events.tell(session, made, "QueueCreated", f"queue {name} created", Change(dry_run, reason))


def _spec(weight: int, hold: bool, strict: bool, **more: Any) -> dict[str, Any]:
    given = {
        "quota": more["quota"],
        "cohort": more["cohort"],
        "borrowingLimit": more["borrowing_limit"],
        "namespaces": list(more["namespaces"]),
        "ordering": "StrictFIFO" if strict else "",
        "stopPolicy": "Hold" if hold else "",
    }
    return {"weight": weight} | {field: value for field, value in given.items() if value}


@queue.command("set-weight", context_settings={"ignore_unknown_options": True})  # -3 is a weight, and is refused as one
@click.argument("name")
@click.argument("weight", type=WEIGHT)
@changing
@pass_session
def set_weight(session: Session, name: str, weight: int, dry_run: bool, reason: str) -> None:
    """Change a queue's weight."""
    _change(session, name, {"weight": weight}, "WeightChanged", f"weight {weight}", Change(dry_run, reason))


@queue.command("set-quota")
@click.argument("name")
@click.argument("quota", nargs=-1, callback=amounts, metavar="[NAME=QUANTITY]...")
@click.option("--unset", multiple=True, metavar="NAME", help="limit this one no more")
@changing
@pass_session
def set_quota(
    session: Session, name: str, quota: dict[str, str], unset: tuple[str, ...], dry_run: bool, reason: str
) -> None:
    """Change some of a queue's limits; the others stay. Lowered below what is used, it drains."""
    if not quota and not unset:
        raise click.UsageError("name a limit, as in nvidia.com/gpu=8, or one to --unset")
    given = " ".join([*(f"{each}={amount}" for each, amount in quota.items()), *(f"-{each}" for each in unset)])
    change = Change(dry_run, reason)
    _change(session, name, {"quota": {**dict.fromkeys(unset), **quota}}, "QuotaChanged", f"quota {given}", change)


@queue.command("set-cohort")
@click.argument("name")
@click.argument("cohort", required=False)
@click.option("--none", "leave", is_flag=True, help="leave the cohort")
@click.option("--borrowing-limit", multiple=True, callback=amounts, help="the most it may borrow: NAME=QUANTITY,...")
@changing
@pass_session
def set_cohort(
    session: Session,
    name: str,
    cohort: str | None,
    leave: bool,
    borrowing_limit: dict[str, str],
    dry_run: bool,
    reason: str,
) -> None:
    """Put a queue into a cohort, whose queues use each other's unused quota."""
    if bool(cohort) == leave:
        raise click.UsageError("name a cohort, or --none")
    spec: dict[str, Any] = {"cohort": cohort}
    if borrowing_limit or leave:
        spec["borrowingLimit"] = borrowing_limit or None
    said = f"cohort {cohort}" if cohort else "in no cohort"
    _change(session, name, spec, "CohortChanged", said, Change(dry_run, reason))


@queue.command()
@NAMES
@click.option("--drain", is_flag=True, help="suspend what runs as well; it comes back first on resume")
@changing
@pass_session
def pause(session: Session, names: tuple[str, ...], drain: bool, dry_run: bool, reason: str) -> None:
    """Admit nothing more from queues; what runs goes on unless --drain."""
    policy, said = ("HoldAndDrain", "on hold and draining") if drain else ("Hold", "on hold")
    for name in names:
        _change(session, name, {"stopPolicy": policy}, "QueuePaused", said, Change(dry_run, reason))


@queue.command()
@NAMES
@changing
@pass_session
def resume(session: Session, names: tuple[str, ...], dry_run: bool, reason: str) -> None:
    """Admit from paused queues again. Several named at once start side by side."""
    for name in names:
        _change(session, name, {"stopPolicy": "None"}, "QueueResumed", "open", Change(dry_run, reason))


def _change(session: Session, name: str, spec: dict[str, Any], code: str, said: str, change: Change) -> None:
    """One patch and its event."""
    try:
        item = session.cluster.patch(TENANT_QUEUES, name, {"spec": spec}, dry_run=change.dry_run)
    except errors.Invalid as error:
        raise errors.Invalid(str(error), error.causes + _stored_before(session, name)) from error
    form = f"queue {name} {said}" if code in ("QueuePaused", "QueueResumed") else f"queue {name}: {said}"
    audit_events.tell(session, item, code, form, change)


@queue.command()
@click.argument("name")
@click.option("--move-to", default="", metavar="QUEUE", help="first move the jobs that wait in it to this queue")
@changing
@pass_session
def delete(session: Session, name: str, move_to: str, dry_run: bool, reason: str) -> None:
    """Delete a queue that no unfinished job names."""
    change = Change(dry_run, reason)
    found = session.cluster.get(TENANT_QUEUES, name)
    empty(session, name, move_to, change)
    session.cluster.delete(TENANT_QUEUES, name, uid=found["metadata"]["uid"], dry_run=dry_run)
    audit_events.tell(session, found, "QueueDeleted", f"queue {name} deleted", change)
