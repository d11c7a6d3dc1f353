"""`torchq job restart`: restarts the containers or the pods of an admitted job.

One rule: the command sets an annotation of the job; a worker restarts once for each request.
"""

import secrets

import click

from coordinator.cli.change_options import ChangeOptions, author, change_options
from coordinator.cli.jobs import selected
from coordinator.cli.jobs.selected import JobChoice
from coordinator.cli.session import Session, pass_session
from coordinator.control import job_changes
from coordinator.runs import in_place
from coordinator.wording import job_state
from crds import labels
from crds.api_resources import TORCHJOBS
from crds.torchjob import torchjob
from crds.torchjob.restart_requests import RestartRequest
from crds.torchjob.torchjob import TorchJob
from kube import errors
from kube.api import Manifest

HOW = {"": "restart", "InPlace": "restart in place", "Recreate": "restart with new pods"}


@click.command()
@selected.jobs_argument
@click.option("--task", help="only pods of this task type (default: the whole job, with a new rendezvous)")
@click.option("--index", type=click.IntRange(0, 9_999), help="only this pod of the task")
@click.option("--in-place", "how", flag_value="InPlace", help="keep the pods, restart their containers")
@click.option("--recreate", "how", flag_value="Recreate", help="replace the pods")
@change_options
@pass_session
def restart(
    session: Session, jobs: JobChoice, task: str | None, index: int | None, how: str | None, change: ChangeOptions
) -> None:
    """Restart jobs, a task or one pod. A job keeps its room, attempt and restart limit. Each call is one restart."""
    if index is not None and task is None:
        raise click.UsageError("--index selects a pod of a task: add --task")
    jobs.for_each(session, lambda item: _restart(session, item, task, index, how or "", change))


def _restart(
    session: Session, item: Manifest, task: str | None, index: int | None, how: str, change: ChangeOptions
) -> None:
    job = torchjob.parse(item)
    _refuse_without_pods(item)
    task = _task(job, task, index)
    if how == "InPlace":
        _check_in_place(session, job, task)
    request = RestartRequest.model_validate({"id": secrets.token_hex(8), "task": task, "index": index, "how": how})
    text = request.model_dump_json(by_alias=True, exclude_defaults=True)
    # The uid keeps the patch from a job of the same name that was submitted meanwhile.
    patch = {"metadata": {"uid": job.metadata.uid, "annotations": {labels.RESTART_REQUEST: text}}}
    item_after = session.cluster.patch(TORCHJOBS, job.key.name, patch, job.key.namespace, dry_run=change.dry_run)
    what = "the whole job" if task is None else f"task {task}" if index is None else f"{task} {index}"
    change_text = f"job {job_state.display_name(item)}: {HOW[request.how]} of {what} requested"
    author(session, change).report(item_after, "JobRestartRequested", change_text)


def _refuse_without_pods(item: Manifest) -> None:
    job_changes.refuse_finished(item)
    name = job_state.display_name(item)
    if item["spec"].get("suspend"):
        raise errors.Conflict(f"job {name} is suspended: torchq job resume {name} starts it again")
    if not job_state.is_admitted(item):
        raise errors.Conflict(f"job {name} waits and has no pods: torchq job why {name} explains why")


def _check_in_place(session: Session, job: TorchJob, task: str | None) -> None:
    """Raise Conflict if no pod can be restarted in place, and tell which of them are replaced otherwise."""
    tasks = [task] if task is not None else list(job.spec.tasks)
    found = in_place.find_driver(session.cluster, embedded=session.is_embedded)
    replaced = in_place.replaced_tasks(job, tasks, found)
    why = "; ".join(dict.fromkeys(replaced.values()))
    if len(replaced) == len(tasks):
        raise errors.Conflict(
            f"job {job.key.namespace}/{job.key.name} cannot be restarted in place: {why}; without --in-place its pods "
            "are replaced"
        )
    if replaced:
        click.echo(f"note: pods of {', '.join(replaced)} are replaced, not restarted in place: {why}", err=True)


def _task(job: TorchJob, task: str | None, index: int | None) -> str | None:
    """Return the task type as the job spells it. Raises UsageError if the job has no such task or pod."""
    if task is None:
        return None
    types = {task_type.lower(): task_type for task_type in job.spec.tasks}
    task_type = types.get(task.lower())
    if task_type is None or (index or 0) >= job.spec.tasks[task_type].num_tasks:
        sizes = ", ".join(f"{task_type} 0..{spec.num_tasks - 1}" for task_type, spec in job.spec.tasks.items())
        missing = task if index is None else f"{task} {index}"
        raise click.UsageError(f"job {job.key.name} has no {missing}; it has {sizes}")
    return task_type
