"""The `torchq job` commands that change or end jobs: suspend, hold, cancel, delete, resume, bump, move.

One rule: each change is one patch of the TorchJob, safe to repeat; a refused patch is not tried another way. A job that
is not the one that was named is never touched: each request has its uid.
"""

from collections.abc import Callable

import click

from coordinator.cli import api_client, job_ref, output, queue_moves
from coordinator.cli.change_options import ChangeOptions, author, change_options
from coordinator.cli.jobs import selected
from coordinator.cli.jobs.selected import JobChoice
from coordinator.cli.session import Session, pass_session
from coordinator.control import job_changes
from coordinator.control.change_author import Change
from coordinator.errors import CoordinatorError
from coordinator.looks import looks
from coordinator.wording import job_state
from crds.api_resources import TORCHJOBS
from kube import errors
from kube.api import Manifest

MOVE_SECONDS = 300.0
_LOOK_SECONDS = 0.2


class MoveFailed(CoordinatorError):
    """A job could not be moved. The message says what has been done and what to do."""


@click.command()
@selected.jobs_argument
@change_options
@pass_session
def suspend(session: Session, jobs: JobChoice, change: ChangeOptions) -> None:
    """Delete a job's pods and free its charge. The job keeps its age."""
    _change_each(session, jobs, change, job_changes.suspend, prepare=selected.idle_first)


@click.command()
@selected.jobs_argument
@change_options
@pass_session
def hold(session: Session, jobs: JobChoice, change: ChangeOptions) -> None:
    """Keep a waiting job out of the order. `resume` returns it; the job keeps its age."""
    _change_each(session, jobs, change, job_changes.hold, prepare=selected.idle_first)


@click.command()
@selected.jobs_argument
@change_options
@pass_session
def cancel(session: Session, jobs: JobChoice, change: ChangeOptions) -> None:
    """End jobs for good, and keep their logs.

    The pods have their grace period, the charge is freed, and the job fails with the reason Cancelled. The object, its
    status and its logs stay for ttlSecondsAfterFinished, else for the setting cancelled_ttl_seconds (a day).

    \b
    torchq job cancel train-x7k2p
    torchq job cancel -l sweep=lr --reason "wrong data"
    """
    _change_each(session, jobs, change, job_changes.cancel, prepare=selected.idle_first)


@click.command()
@selected.jobs_argument
@change_options
@pass_session
def delete(session: Session, jobs: JobChoice, change: ChangeOptions) -> None:
    """Delete jobs with all that is known of them.

    Pods that run have their grace period. `torchq job cancel` ends a job and keeps its status and its logs.

    \b
    torchq job delete train-x7k2p default/eval
    """

    def act(item: Manifest) -> None:
        name, namespace, uid = (item["metadata"][field] for field in ("name", "namespace", "uid"))
        session.cluster.delete(TORCHJOBS, name, namespace, uid=uid, dry_run=change.dry_run)
        author(session, change).report(item, "JobDeleted", f"job {namespace}/{name} deleted")

    jobs.for_each(session, act, prepare=selected.idle_first)


@click.command()
@selected.jobs_argument
@change_options
@pass_session
def resume(session: Session, jobs: JobChoice, change: ChangeOptions) -> None:
    """Resume a suspended, held or delayed job. A job that is parked or backs off is tried again at once."""
    _change_each(session, jobs, change, lambda item: job_changes.resume(item, output.now()))


def _change_each(
    session: Session,
    jobs: JobChoice,
    change: ChangeOptions,
    make: Callable[[Manifest], Change],
    prepare: Callable[[list[Manifest]], list[Manifest]] = list,
) -> None:
    """Make the same change of each of the jobs, in the order that `prepare` returns."""
    jobs.for_each(session, lambda item: author(session, change).change_job(item, make(item)), prepare=prepare)


@click.command()
@selected.jobs_argument
@change_options
@pass_session
def bump(session: Session, jobs: JobChoice, change: ChangeOptions) -> None:
    """Move a waiting job to the head of its queue. Raises its priority and ends its back-off or parking."""
    jobs.for_each(session, lambda item: _bump(session, item, change))


def _bump(session: Session, item: Manifest, change: ChangeOptions) -> None:
    bumped = job_changes.bump(item, lambda queue: api_client.find(session).queue(queue), output.now())
    if bumped.change is None:
        click.echo(bumped.note)
        return
    author(session, change).change_job(item, bumped.change)
    if bumped.note:
        click.echo(bumped.note, err=True)


@click.command()
@selected.jobs_argument
@click.option("--to", "--queue", "to", help="the new queue; without it, the last argument names it")
@click.option("--requeue", is_flag=True, help="move even admitted jobs: suspend them, wait, move them, resume them")
@click.option(
    "--timeout",
    type=click.FloatRange(1, 86_400),
    default=MOVE_SECONDS,
    show_default=True,
    help="seconds to wait for the pods of each to end",
)
@selected.anyway_option
@change_options
@pass_session
def move(
    session: Session,
    jobs: JobChoice,
    to: str | None,
    requeue: bool,
    timeout: float,
    anyway: bool,
    change: ChangeOptions,
) -> None:
    """Move jobs to another queue. They keep their age.

    A queue in which one of the jobs could never run is refused, as `torchq submit` refuses it, before any job changes.

    \b
    torchq job move train-x7k2p team-b
    torchq job move -l sweep=lr --to team-b
    """
    if to is None:
        if len(jobs.names) + bool(jobs.selector) < 2:
            raise click.UsageError("name one queue to move the jobs to: after them, or with --to")
        *others, to = jobs.names
        jobs = JobChoice(tuple(others), jobs.selector)
    queue = to
    jobs.for_each(
        session,
        lambda item: _move(session, item, queue, requeue, timeout, change),
        prepare=lambda items: _check_moves(session, items, queue, requeue, anyway),
    )


def _check_moves(session: Session, items: list[Manifest], queue: str, requeue: bool, anyway: bool) -> list[Manifest]:
    """Return jobs in the order of their moves. Raises NeverRuns if one of those that move could never run then."""
    moving = [item for item in items if not job_state.is_finished(item) and job_state.queue_of(item) != queue]
    moving = [item for item in moving if requeue or not job_state.is_admitted(item)]
    queue_moves.check(session, moving, queue, anyway=anyway)
    # Room that a job gives up in the old queue goes to the first job that waits there: that must be none of these.
    return sorted(items, key=job_state.is_admitted)


def _move(session: Session, item: Manifest, queue: str, requeue: bool, timeout: float, change: ChangeOptions) -> None:
    job_changes.refuse_finished(item)
    if job_state.is_admitted(item) and job_state.queue_of(item) != queue:
        item = _release(session, item, queue, requeue, timeout, change)
    resumed = requeue and bool(item["spec"].get("suspend"))
    if job_state.queue_of(item) == queue and not resumed:
        click.echo(f"job {job_state.display_name(item)} is in queue {queue} already")
        return
    if not (
        change.dry_run and job_state.is_admitted(item)
    ):  # the API server refuses to move an admitted job, and a dry run does not suspend it
        queue_moves.move(session, item, queue, change, resume=resumed)


def _release(
    session: Session, item: Manifest, queue: str, requeue: bool, timeout: float, change: ChangeOptions
) -> Manifest:
    """Suspend a job and return it once it holds no room. Called again after an interruption, it continues there."""
    if not requeue:
        raise errors.Conflict(
            f"job {job_state.display_name(item)} holds room in queue {job_state.queue_of(item)}: "
            f"--requeue suspends it, moves it to {queue} and resumes it there"
        )
    suspended = job_changes.suspend(item, f", to be moved to queue {queue}")
    item = author(session, change).change_job(item, suspended)
    if change.dry_run:
        return item
    name = job_state.display_name(item)
    for _ in looks(timeout, _LOOK_SECONDS):
        item = job_ref.find(session, str(job_ref.key(item)))
        if not job_state.is_admitted(item) and (item.get("status") or {}).get("phase") == "Suspended":
            return item
        if job_state.is_finished(item):
            raise MoveFailed(f"job {name} finished before it could be suspended")
    raise MoveFailed(
        f"job {name} is suspended but still holds its room after {timeout:.0f} s; run the same command again to "
        "continue"
    )
