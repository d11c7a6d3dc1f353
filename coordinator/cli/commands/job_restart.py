"""`torchq job restart`: containers, or pods, of a job that holds room begin anew.

One rule: it asks by an annotation of the job; a worker does it, once for each request.
"""

import secrets

import click

from coordinator.cli import audit_events, job_ref
from coordinator.cli.audit_events import Change, changing
from coordinator.cli.job_ref import NAME
from coordinator.cli.session import Session, pass_session
from crds import labels
from crds.api_resources import TORCHJOBS
from crds.torchjob import torchjob
from crds.torchjob.restart_requests import RestartRequest
from crds.torchjob.torchjob import TorchJob
from kube import errors
from kube.api import Manifest

HOW = {"": "restart", "InPlace": "restart in place", "Recreate": "restart with new pods"}


@click.command()
@NAME
@click.option("--task", help="only the pods of this task type (default: the whole job, under a new rendezvous)")
@click.option("--index", type=click.IntRange(0, 9_999), help="only this pod of the task")
@click.option("--in-place", "how", flag_value="InPlace", help="keep the pods, restart their containers")
@click.option("--recreate", "how", flag_value="Recreate", help="replace the pods")
@changing
@pass_session
def restart(
    session: Session, name: str, task: str | None, index: int | None, how: str | None, dry_run: bool, reason: str
) -> None:
    """Restart a job, a task or one pod; room, attempt and restart limit stay as they are. Each call is one restart."""
    if index is not None and task is None:
        raise click.UsageError("--index says which pod of a task: give --task, too")
    item = job_ref.find(session, name)
    job = torchjob.parse(item)
    _refuse_without_pods(item)
    task = _task(job, task, index)
    request = RestartRequest.model_validate(
        {"id": secrets.token_hex(8), "task": task, "index": index, "how": how or ""}
    )
    text = request.model_dump_json(by_alias=True, exclude_defaults=True)
    # The uid: a job of the same name that was submitted meanwhile is not meant.
    patch = {"metadata": {"uid": job.metadata.uid, "annotations": {labels.RESTART_REQUEST: text}}}
    found = session.cluster.patch(TORCHJOBS, job.key.name, patch, job.key.namespace, dry_run=dry_run)
    said = f"job {job_ref.shown(item)}: {HOW[request.how]} of {_what(task, index)} requested"
    audit_events.tell(session, found, "JobRestartRequested", said, Change(dry_run, reason))


def _refuse_without_pods(item: Manifest) -> None:
    shown = job_ref.shown(item)
    if job_ref.finished(item):
        raise errors.Conflict(f"job {shown} has finished: submit a new job")
    if item["spec"].get("suspend"):
        raise errors.Conflict(f"job {shown} is suspended: torchq job resume {shown} starts it anew")
    if not job_ref.admitted(item):
        raise errors.Conflict(f"job {shown} waits and has no pods: torchq job why {shown} says what for")


def _task(job: TorchJob, wanted: str | None, index: int | None) -> str | None:
    """The task type as the job spells it. UsageError if it has no such task or pod."""
    if wanted is None:
        return None
    types = {each.lower(): each for each in job.spec.tasks}
    found = types.get(wanted.lower())
    if found is None or (index or 0) >= job.spec.tasks[found].num_tasks:
        sizes = ", ".join(f"{each} 0..{spec.num_tasks - 1}" for each, spec in job.spec.tasks.items())
        missing = wanted if index is None else f"{wanted} {index}"
        raise click.UsageError(f"job {job.key.name} has no {missing}; it has {sizes}")
    return found


def _what(task: str | None, index: int | None) -> str:
    if task is None:
        return "the whole job"
    return f"task {task}" if index is None else f"{task} {index}"
