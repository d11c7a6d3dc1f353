"""`torchq job cancel` ends jobs and keeps what is known of them; `torchq job delete` removes them.

One rule: a job that is not the one that was named is never touched: each request has its uid.
"""

import click

from coordinator.cli import audit_events, job_ref
from coordinator.cli.audit_events import ChangeOptions, change_options
from coordinator.cli.jobs import selected
from coordinator.cli.session import Session, pass_session
from crds.api_resources import TORCHJOBS
from kube import errors
from kube.api import Manifest


@click.command()
@selected.jobs_argument
@change_options
@pass_session
def cancel(session: Session, names: tuple[str, ...], selector: str, dry_run: bool, reason: str) -> None:
    """End jobs for good, and keep their logs.

    The pods have their grace period, the charge is freed, and the job fails with the reason Cancelled. The object, its
    status and its logs stay for ttlSecondsAfterFinished, else for the setting cancelled_ttl_seconds (a day).

    \b
    torchq job cancel train-x7k2p
    torchq job cancel -l sweep=lr --reason "wrong data"
    """
    change = ChangeOptions(dry_run, reason)
    selected.for_each(session, names, selector, lambda item: _cancel(session, item, change))


def _cancel(session: Session, item: Manifest, change: ChangeOptions) -> None:
    metadata, name = item["metadata"], job_ref.display_name(item)
    if job_ref.is_finished(item):
        raise errors.Conflict(f"job {name} has ended already ({item['status']['phase']}): torchq job delete removes it")
    patch = {"metadata": {"uid": metadata["uid"]}, "spec": {"cancel": True}}
    item = session.cluster.patch(TORCHJOBS, metadata["name"], patch, metadata["namespace"], dry_run=change.dry_run)
    audit_events.report(session, item, "JobCancelled", f"job {name} cancelled", change)


@click.command()
@selected.jobs_argument
@change_options
@pass_session
def delete(session: Session, names: tuple[str, ...], selector: str, dry_run: bool, reason: str) -> None:
    """Delete jobs with all that is known of them.

    Pods that run have their grace period. `torchq job cancel` ends a job and keeps its status and its logs.

    \b
    torchq job delete train-x7k2p default/eval
    """
    change = ChangeOptions(dry_run, reason)
    selected.for_each(session, names, selector, lambda item: _delete(session, item, change))


def _delete(session: Session, item: Manifest, change: ChangeOptions) -> None:
    metadata = item["metadata"]
    session.cluster.delete(
        TORCHJOBS, metadata["name"], metadata["namespace"], uid=metadata["uid"], dry_run=change.dry_run
    )
    audit_events.report(session, item, "JobDeleted", f"job {job_ref.display_name(item)} deleted", change)
