"""Moves of jobs from one queue to another, and out of a queue that will be deleted.

One rule: no job is moved unless all of the jobs can be moved; each step is safe to repeat.
"""

import click

from coordinator.cli.change_options import ChangeOptions, author
from coordinator.cli.jobs import selected
from coordinator.cli.session import Session
from coordinator.control import job_changes
from coordinator.rbac.permissions import USER
from coordinator.wording import job_state
from crds.api_resources import TENANT_QUEUES, TORCHJOBS
from kube import errors
from kube.api import Manifest


def empty(session: Session, name: str, move_to: str, change: ChangeOptions, *, anyway: bool) -> None:
    """Move all unfinished jobs of a queue to `move_to`.

    Raises Conflict if `move_to` is empty or a job holds room, and NeverRuns as `check` does.
    """
    users = jobs_of(session, name)
    if not users:
        return
    if not move_to:
        raise errors.Conflict(
            f"queue {name} has {len(users)} unfinished jobs, {job_state.display_name(users[0])} among them; "
            "cancel them, let them end first, or name another queue with --move-to"
        )
    if move_to == name:
        raise click.UsageError("--move-to: name another queue than the one to delete")
    session.cluster.get(TENANT_QUEUES, move_to)  # NotFound names the missing queue
    _refuse_admitted(name, move_to, users)
    check(session, users, move_to, anyway=anyway)
    owner = session.with_role(USER)  # changing jobs takes a user's permissions
    for job in users:
        metadata = job["metadata"]
        owner.cluster.patch(
            TORCHJOBS, metadata["name"], job_changes.move(job, move_to).patch, metadata["namespace"], dry_run=True
        )
    if not change.dry_run:  # no job may be admitted from it while its jobs leave
        session.cluster.patch(TENANT_QUEUES, name, {"spec": {"stopPolicy": "Hold"}})
        users = jobs_of(session, name)
        _refuse_admitted(name, move_to, users)
    for job in users:
        move(owner, job, move_to, change)


def jobs_of(session: Session, name: str) -> list[Manifest]:
    """Return the unfinished jobs that name a queue."""
    items = (item for page in session.cluster.pages(TORCHJOBS) for item in page.items)
    return [item for item in items if not job_state.is_finished(item) and job_state.queue_of(item) == name]


def check(session: Session, jobs: list[Manifest], queue: str, *, anyway: bool) -> None:
    """Raise NeverRuns if one of the jobs could never run in a queue, unless `anyway`."""
    moved = []
    for job in jobs:
        policy = {**(job["spec"].get("schedulingPolicy") or {}), "queue": queue}
        moved.append({**job, "spec": {**job["spec"], "schedulingPolicy": policy}})
    selected.check_change(session, moved, f"move to queue {queue}", ("moves", "moved"), anyway=anyway)


def move(session: Session, job: Manifest, queue: str, change: ChangeOptions, *, resume: bool = False) -> None:
    """Move a job that holds no room to another queue; the job keeps its age."""
    author(session, change).change_job(job, job_changes.move(job, queue, resumed=resume))


def _refuse_admitted(name: str, move_to: str, users: list[Manifest]) -> None:
    holding = [job for job in users if job_state.is_admitted(job)]
    if holding:
        raise errors.Conflict(
            f"queue {name} has {len(holding)} jobs that hold room, {job_state.display_name(holding[0])} among them; "
            f"let them end, or move each with: torchq job move JOB {move_to} --requeue"
        )
