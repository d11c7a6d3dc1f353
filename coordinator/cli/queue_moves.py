"""Emptying a queue that is to go.

One rule: nothing is changed unless all of it can be; each step is safe to repeat.
"""

import click

from coordinator.cli import audit_events, columns, job_ref
from coordinator.cli.audit_events import Change
from coordinator.cli.session import Session
from coordinator.rbac.permissions import USER
from crds.api_resources import TENANT_QUEUES, TORCHJOBS
from kube import errors
from kube.api import Manifest


def empty(session: Session, name: str, move_to: str, change: Change) -> None:
    """Have no unfinished job name the queue. Conflict if some do and are not to be moved, or hold room."""
    users = using(session, name)
    if not users:
        return
    if not move_to:
        raise errors.Conflict(
            f"queue {name} has {len(users)} unfinished jobs, {job_ref.shown(users[0])} among them; "
            "cancel them, let them end first, or name another queue with --move-to"
        )
    if move_to == name:
        raise click.UsageError("--move-to: name another queue than the one that goes")
    session.cluster.get(TENANT_QUEUES, move_to)  # NotFound names it
    _refuse_admitted(name, move_to, users)
    owner = session.acting_as(USER)  # jobs are their owners': it takes a user's permissions
    for job in users:
        _moved(owner, job, move_to, dry_run=True)
    if not change.dry_run:  # nothing may be admitted from it while its jobs leave
        session.cluster.patch(TENANT_QUEUES, name, {"spec": {"stopPolicy": "Hold"}})
        users = using(session, name)
        _refuse_admitted(name, move_to, users)
    for job in users:
        move(owner, job, move_to, change)


def using(session: Session, name: str) -> list[Manifest]:
    """The unfinished jobs that name a queue."""
    found = (item for page in session.cluster.pages(TORCHJOBS) for item in page.items)
    return [item for item in found if not job_ref.finished(item) and columns.queue_of(item) == name]


def move(session: Session, job: Manifest, queue: str, change: Change, *, resume: bool = False) -> None:
    """Have a job that holds no room wait in another queue; it keeps its age."""
    item = _moved(session, job, queue, resume=resume, dry_run=change.dry_run)
    said = f"job {job_ref.shown(job)} moved from queue {columns.queue_of(job)} to {queue}"
    audit_events.tell(session, item, "JobMoved", said, change)


def _moved(session: Session, job: Manifest, queue: str, *, resume: bool = False, dry_run: bool) -> Manifest:
    """The job in its new queue."""
    metadata = job["metadata"]
    spec = {"schedulingPolicy": {"queue": queue}} | ({"suspend": False} if resume else {})
    return session.cluster.patch(TORCHJOBS, metadata["name"], {"spec": spec}, metadata["namespace"], dry_run=dry_run)


def _refuse_admitted(name: str, move_to: str, users: list[Manifest]) -> None:
    holding = [job for job in users if job_ref.admitted(job)]
    if holding:
        raise errors.Conflict(
            f"queue {name} has {len(holding)} jobs that hold room, {job_ref.shown(holding[0])} among them; "
            f"let them end, or move each with: torchq job move JOB {move_to} --requeue"
        )
