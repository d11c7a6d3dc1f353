"""`torchq job` for what changes a job: cancel, suspend, resume, hold, bump, move.

One rule: each change is one patch of the TorchJob, safe to repeat; what the cluster refuses is not tried another way.
"""

import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import click

from coordinator.cli import api_client, audit_events, columns, job_ref, queue_moves
from coordinator.cli.audit_events import Change, changing
from coordinator.cli.job_ref import NAME
from coordinator.cli.session import Session, pass_session
from coordinator.errors import CoordinatorError
from crds import labels
from crds.api_resources import TORCHJOBS
from crds.torchjob.jobspec import MAX_PRIORITY
from kube import errors
from kube.api import Manifest
from queues.order import BOOST_LIMIT_SECONDS

MOVE_SECONDS = 300.0
_LOOK_SECONDS = 0.2


class NotMoved(CoordinatorError):
    """A job could not be moved; says what has been done and what to do."""


@click.command()
@NAME
@changing
@pass_session
def cancel(session: Session, name: str, dry_run: bool, reason: str) -> None:
    """Delete a job: its pods end, its charge is freed."""
    item = job_ref.find(session, name)
    metadata = item["metadata"]
    session.cluster.delete(TORCHJOBS, metadata["name"], metadata["namespace"], uid=metadata["uid"], dry_run=dry_run)
    audit_events.tell(session, item, "JobCancelled", f"job {job_ref.shown(item)} cancelled", Change(dry_run, reason))


@click.command()
@NAME
@changing
@pass_session
def suspend(session: Session, name: str, dry_run: bool, reason: str) -> None:
    """Take a job's pods away and free its charge; it keeps its age."""
    item = job_ref.find(session, name)
    _patch(session, item, {"spec": {"suspend": True}}, "JobSuspended", "suspended", Change(dry_run, reason))


@click.command()
@NAME
@changing
@pass_session
def hold(session: Session, name: str, dry_run: bool, reason: str) -> None:
    """Take a waiting job out of the order until `resume`; it keeps its age."""
    item = job_ref.find(session, name)
    if job_ref.admitted(item):
        raise errors.Conflict(f"job {job_ref.shown(item)} holds room already: torchq job suspend takes its pods away")
    patch = {"spec": {"schedulingPolicy": {"hold": True}}}
    _patch(session, item, patch, "JobHeld", "held", Change(dry_run, reason))


@click.command()
@NAME
@changing
@pass_session
def resume(session: Session, name: str, dry_run: bool, reason: str) -> None:
    """Put a suspended, held, parked or backing off job back in its queue."""
    item = job_ref.find(session, name)
    patch: dict[str, Any] = {"spec": {"suspend": False}}
    if (item["spec"].get("schedulingPolicy") or {}).get("hold"):
        patch["spec"]["schedulingPolicy"] = {"hold": False}
    if _set_back(item):
        patch |= _retry()
    _patch(session, item, patch, "JobResumed", "resumed", Change(dry_run, reason))


@click.command()
@NAME
@changing
@pass_session
def bump(session: Session, name: str, dry_run: bool, reason: str) -> None:
    """Make a waiting job the first of its queue: raises its priority; ends its backing off or parking."""
    item = job_ref.find(session, name)
    queue = columns.queue_of(item)
    if job_ref.admitted(item) or job_ref.finished(item):
        raise errors.Conflict(f"job {job_ref.shown(item)} does not wait: there is nothing to bump")
    figures = api_client.find(session).queue(queue)
    priority = _needed(item, figures)
    patch: dict[str, Any] = _retry() if _set_back(item) else {}
    if priority is not None:
        patch["spec"] = {"schedulingPolicy": {"priority": priority}}
    if not patch:
        click.echo(f"job {job_ref.shown(item)} is the first of queue {queue} already")
        return
    said = f"bumped in queue {queue}" + ("" if priority is None else f" to priority {priority}")
    _patch(session, item, patch, "JobBumped", said, Change(dry_run, reason))
    if priority is not None and not overtakes(item, figures, priority):
        click.echo(
            f"note: {figures['status']['first']} stays before it: priority is worth "
            f"{BOOST_LIMIT_SECONDS / 86_400:.0f} days of waiting at most",
            err=True,
        )


def _needed(item: Manifest, figures: Manifest) -> int | None:
    """The priority that makes a job the first of its queue, or comes nearest to that; None if it is the first."""
    first, score = figures["status"].get("first"), figures["status"].get("firstScore")
    if first is None or first == job_ref.shown(item):
        return None
    aging = figures["spec"]["agingSeconds"]
    most = min(MAX_PRIORITY, int(BOOST_LIMIT_SECONDS // aging))
    wanted = int((_submitted(item) - score) // aging) + 1
    return max(_priority(item), min(wanted, most))


def overtakes(item: Manifest, figures: Manifest, priority: int) -> bool:
    """Whether a job of that priority goes before the first one."""
    boost = min(priority * figures["spec"]["agingSeconds"], BOOST_LIMIT_SECONDS)
    return bool(_submitted(item) - boost < figures["status"]["firstScore"])


@click.command()
@NAME
@click.argument("queue", required=False)
@click.option("--to", "--queue", "to", help="the queue, if it is not the second argument")
@click.option("--requeue", is_flag=True, help="also if it holds room: suspend it, wait, move it, resume it")
@click.option(
    "--timeout",
    type=click.FloatRange(1, 86_400),
    default=MOVE_SECONDS,
    show_default=True,
    help="seconds to wait for its pods to end",
)
@changing
@pass_session
def move(
    session: Session,
    name: str,
    queue: str | None,
    to: str | None,
    requeue: bool,
    timeout: float,
    dry_run: bool,
    reason: str,
) -> None:
    """Have a job wait in another queue; it keeps its age."""
    if (queue is None) == (to is None):
        raise click.UsageError("name one queue to move the job to")
    queue = queue or str(to)
    item, change = job_ref.find(session, name), Change(dry_run, reason)
    if job_ref.finished(item):
        raise errors.Conflict(f"job {job_ref.shown(item)} has finished: submit a new job")
    if job_ref.admitted(item) and columns.queue_of(item) != queue:
        item = _made_free(session, item, queue, requeue, timeout, change)
    resumed = requeue and bool(item["spec"].get("suspend"))
    if columns.queue_of(item) == queue and not resumed:
        click.echo(f"job {job_ref.shown(item)} is in queue {queue} already")
        return
    if not (dry_run and job_ref.admitted(item)):  # the API server would refuse what the suspension is to make possible
        queue_moves.move(session, item, queue, change, resume=resumed)


def _made_free(session: Session, item: Manifest, queue: str, requeue: bool, timeout: float, change: Change) -> Manifest:
    """The job once it holds nothing. Repeated after an interruption, it goes on where that happened."""
    if not requeue:
        raise errors.Conflict(
            f"job {job_ref.shown(item)} holds room in queue {columns.queue_of(item)}: "
            f"--requeue suspends it, moves it to {queue} and resumes it there"
        )
    said = f"suspended, to be moved to queue {queue}"
    item = _patch(session, item, {"spec": {"suspend": True}}, "JobSuspended", said, change)
    if change.dry_run:
        return item
    name, deadline = job_ref.shown(item), time.monotonic() + timeout
    while job_ref.admitted(item) or (item.get("status") or {}).get("phase") != "Suspended":
        if job_ref.finished(item):
            raise NotMoved(f"job {name} finished before it could be suspended")
        if time.monotonic() > deadline:
            raise NotMoved(
                f"job {name} is suspended but has not given its room back in {timeout:.0f} s; "
                "the same command again goes on from here"
            )
        time.sleep(_LOOK_SECONDS)
        item = job_ref.find(session, str(job_ref.key(item)))
    return item


def _set_back(item: Manifest) -> bool:
    """Whether it is parked, or backs off."""
    queue = (item.get("status") or {}).get("queue") or {}
    return bool(queue.get("parked") or queue.get("notBefore"))


def _retry(now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> dict[str, Any]:
    return {"metadata": {"annotations": {labels.RETRY_AT: now().strftime("%Y-%m-%dT%H:%M:%S.%fZ")}}}


def _submitted(item: Manifest) -> float:
    return datetime.fromisoformat(item["metadata"]["creationTimestamp"]).timestamp()


def _priority(item: Manifest) -> int:
    return int((item["spec"].get("schedulingPolicy") or {}).get("priority", 0))


def _patch(session: Session, item: Manifest, patch: dict[str, Any], code: str, said: str, change: Change) -> Manifest:
    """One patch and its event; the job as it is then."""
    metadata = item["metadata"]
    found = session.cluster.patch(TORCHJOBS, metadata["name"], patch, metadata["namespace"], dry_run=change.dry_run)
    audit_events.tell(session, found, code, f"job {job_ref.shown(item)} {said}", change)
    return found
