"""`torchq submit` and `torchq job`: from a file to a finished job, from the user's side.

One rule: the client only requests. Once the handle is printed, the job is in the cluster and needs the client no more.
"""

import sys
import time
from functools import partial
from typing import Any

import click

from coordinator.cli import (
    columns,
    job_details,
    job_growth,
    job_ref,
    job_text,
    outlook,
    output,
    submission,
)
from coordinator.cli import (
    job_context as surroundings,
)
from coordinator.cli.job_ref import NAME
from coordinator.cli.lazy_group import LazyGroup
from coordinator.cli.manifest_files import BadManifest
from coordinator.cli.session import Session, pass_session
from crds.api_resources import PODS, TORCHJOBS
from crds.keys import JobKey
from crds.torchjob import grant, torchjob
from crds.torchjob.tasks import WORKER
from crds.torchjob.torchjob import TorchJob
from kube import errors
from kube.api import Cluster

FORM = click.option("-o", "form", type=click.Choice(["json", "yaml"]), help="print the whole object for programs")


@click.command()
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option("--dry-run", is_flag=True, help="validate only, create nothing")
@click.option(
    "--anyway", is_flag=True, help="submit even jobs that can never run with the present queues, quotas and nodes"
)
@pass_session
def submit(session: Session, files: tuple[str, ...], dry_run: bool, anyway: bool) -> None:
    """Submit TorchJobs from YAML files. All jobs are submitted or none; FILE `-` is standard input.

    Prints namespace/name/uid of each job. A job that can never run is refused: it requests more than its queue or this
    machine can ever provide, names a queue or a PriorityClass that does not exist, or uses a feature that the embedded
    cluster does not have.
    """
    documents = submission.read(files, session.namespace, submission.folder())
    if not documents:
        raise BadManifest(f"{', '.join(files)}: the file contains no TorchJob")
    check_jobs = outlook.FeasibilityCheck(session)
    for key in submission.submit(
        session.cluster,
        documents,
        dry_run=dry_run,
        check_jobs=check_jobs,
        anyway=anyway,
        embedded=session.target.data is not None,
        tell=partial(click.echo, err=True),
    ):
        click.echo(key)
    if dry_run:
        click.echo(f"{len(documents)} valid on {session.cluster_name}, nothing created (dry run)")
    else:
        # Programs read standard output, so it has the handles alone.
        click.echo(f"{len(documents)} submitted on {session.cluster_name}", err=True)


COMMANDS = {
    "why": "coordinator.cli.commands.inspect:why",
    "position": "coordinator.cli.commands.inspect:position",
    "restart": "coordinator.cli.commands.job_restart:restart",
    "scale": "coordinator.cli.commands.job_scale:scale",
    **{
        name: f"coordinator.cli.commands.job_control:{name}"
        for name in ("cancel", "suspend", "resume", "hold", "bump", "move")
    },
}


@click.group(cls=LazyGroup, lazy_commands=COMMANDS)
def job() -> None:
    """Show and control jobs. JOB is a name, namespace/name, or the handle that `submit` printed."""


@job.command("list")
@click.option("-A", "--all-namespaces", is_flag=True, help="jobs of every namespace")
@click.option("--queue", help="only jobs of this queue")
@output.table_options
@pass_session
def list_jobs(session: Session, /, all_namespaces: bool, queue: str | None, **options: Any) -> None:
    """List jobs in the order of submission."""
    items = session.cluster.list(TORCHJOBS, "" if all_namespaces else session.namespace).items
    items = [item for item in items if queue is None or columns.queue_of(item) == queue]
    output.parse_list_options(options).show(
        columns.job_columns(output.now()), sorted(items, key=columns.submission_order)
    )


@job.command()
@NAME
@click.option("-o", "form", type=click.Choice(["json", "yaml", "wide"]), help="the whole object, or more columns")
@pass_session
def show(session: Session, name: str, form: str | None) -> None:
    """Show one job in detail. The output has its state, the reason why a task is short of pods, restarts, conditions,
    pods and the last events."""
    item = job_ref.find(session, name)
    job_context = surroundings.read(session.cluster, item, embedded=session.target.data is not None)
    document = job_details.describe(item, job_context) | {
        "workers": job_growth.read(session, item),
        "size": job_growth.size_of(item),
        "training": surroundings.read_reports(session, item, job_context.pods),
    }
    if form in ("json", "yaml"):
        output.print_document({**item, "details": document}, form)
    else:
        click.echo(job_text.format_job(item, document, job_context.pods, wide=form == "wide"))


@job.command()
@NAME
@click.option("-f", "--follow", is_flag=True, help="wait for the pod to start, then print until it ends")
@click.option("--task", help="task type (default: the one of rank 0)")
@click.option("--index", default=0, show_default=True, type=click.IntRange(min=0), help="which pod of the task")
@click.option("-c", "--container", default="", help="container (default: the first)")
@pass_session
def logs(session: Session, name: str, follow: bool, task: str | None, index: int, container: str) -> None:
    """Print the log of a job's pod."""
    item = job_ref.find(session, name)
    parsed = torchjob.parse(item)
    types = {task_type.lower(): task_type for task_type in parsed.spec.tasks}
    selected = _first_task(parsed) if task is None else task.lower()
    if selected not in types or index not in _indexes(parsed, types[selected]):
        sizes = ", ".join(f"{task_type} 0..{spec.num_tasks - 1}" for task_type, spec in parsed.spec.tasks.items())
        raise click.UsageError(f"job {name} has no {task or selected} {index}; it has {sizes}")
    pod = parsed.pod_name(types[selected], index)
    if follow:
        _wait_for_start(session, parsed.key, pod)
    for piece in session.cluster.logs(pod, parsed.key.namespace, container, follow=follow):
        sys.stdout.buffer.write(piece)
        sys.stdout.buffer.flush()


def _first_task(job: TorchJob) -> str:
    """Return the task of rank 0, in lower case; a task without ranks only if there is no other."""
    ranked = (name for name, task in job.spec.tasks.items() if not task.auxiliary)
    return next(ranked, next(iter(job.spec.tasks))).lower()


def _indexes(job: TorchJob, task_type: str) -> frozenset[int]:
    """Return the indexes of the pods of a task: those that are requested, and those that were granted."""
    count = job.spec.tasks[task_type].num_tasks
    is_granted = task_type == WORKER and job.admission is not None
    granted = grant.indexes(job.admission, count) if is_granted and job.admission is not None else ()
    return frozenset({*range(count), *granted})


def _wait_for_start(session: Session, key: JobKey, pod: str) -> None:
    """Return once the pod has run, or once the job has ended before the pod could run."""
    reported = ""
    while True:
        item = session.cluster.get(TORCHJOBS, key.name, key.namespace)
        phase = (item.get("status") or {}).get("phase") or "Pending"
        if phase in ("Succeeded", "Failed") or _has_started(session.cluster, key.namespace, pod):
            return
        if reported != phase:
            click.echo(f"job {key.namespace}/{key.name} is {phase}; waiting for pod {pod}", err=True)
        reported = phase
        time.sleep(0.5)


def _has_started(cluster: Cluster, namespace: str, pod: str) -> bool:
    try:
        return cluster.get(PODS, pod, namespace).get("status", {}).get("phase") in ("Running", "Succeeded", "Failed")
    except errors.NotFound:
        return False
