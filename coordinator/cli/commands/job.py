"""`torchq submit` and `torchq job`: from a file to a finished job, seen from the user's side.

One rule: the client only asks. Once the handle is printed the job lives in the cluster, whatever becomes of the client.
"""

import sys
import time
from functools import partial
from typing import Any

import click

from coordinator.cli import columns, job_context, job_details, job_ref, job_text, outlook, output, submission
from coordinator.cli.job_ref import NAME
from coordinator.cli.lazy_group import OnDemand
from coordinator.cli.session import Session, pass_session
from crds.api_resources import PODS, TORCHJOBS
from crds.keys import JobKey
from crds.torchjob import torchjob
from kube import errors
from kube.api import Cluster

FORM = click.option("-o", "form", type=click.Choice(["json", "yaml"]), help="print the whole object for programs")


@click.command()
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option("--dry-run", is_flag=True, help="check only")
@click.option("--anyway", is_flag=True, help="submit also what can never run as queues, quotas and nodes are now")
@pass_session
def submit(session: Session, files: tuple[str, ...], dry_run: bool, anyway: bool) -> None:
    """Submit the TorchJobs of YAML files (`-`: standard input), all or none; prints each job's namespace/name/uid.

    A job that can never run is refused: it asks for more than its queue, or this machine, can ever give, names a queue
    or a PriorityClass that there is not, or asks for what the embedded cluster does not do.
    """
    documents = submission.read(files, session.namespace, submission.folder())
    if not documents:
        raise submission.BadManifest(f"{', '.join(files)}: no TorchJob in it")
    look = outlook.Asking(session)
    for key in submission.submit(
        session.cluster, documents, dry_run=dry_run, look=look, anyway=anyway, tell=partial(click.echo, err=True)
    ):
        click.echo(key)
    if dry_run:
        click.echo(f"{len(documents)} valid on {session.cluster_word}, nothing created (dry run)")
    else:
        # Standard output has the handles alone, for programs.
        click.echo(f"{len(documents)} submitted on {session.cluster_word}", err=True)


LATER = {
    "why": "coordinator.cli.commands.inspect:why",
    "position": "coordinator.cli.commands.inspect:position",
    "restart": "coordinator.cli.commands.job_restart:restart",
    **{
        name: f"coordinator.cli.commands.job_control:{name}"
        for name in ("cancel", "suspend", "resume", "hold", "bump", "move")
    },
}


@click.group(cls=OnDemand, later=LATER)
def job() -> None:
    """Show and steer jobs. JOB is a name, namespace/name, or the handle that `submit` printed."""


@job.command("list")
@click.option("-A", "--all-namespaces", is_flag=True, help="jobs of every namespace")
@click.option("--queue", help="only jobs of this queue")
@output.listing
@pass_session
def list_jobs(session: Session, /, all_namespaces: bool, queue: str | None, **options: Any) -> None:
    """List jobs, in the order in which they were submitted."""
    items = session.cluster.list(TORCHJOBS, "" if all_namespaces else session.namespace).items
    items = [item for item in items if queue is None or columns.queue_of(item) == queue]
    output.asked(options).show(columns.job_columns(output.now()), sorted(items, key=columns.submission_order))


@job.command()
@NAME
@FORM
@pass_session
def show(session: Session, name: str, form: str | None) -> None:
    """Show one job: where it stands, which task is short of pods and why, restarts, conditions, pods, last events."""
    item = job_ref.find(session, name)
    around = job_context.of(session.cluster, item, embedded=session.target.data is not None)
    found = job_details.of(item, around)
    if form:
        output.show({**item, "details": found}, form)
    else:
        click.echo(job_text.show(item, found, around.pods))


@job.command()
@NAME
@click.option("-f", "--follow", is_flag=True, help="wait for the start and print until the end")
@click.option("--task", help="task type (default: the one of rank 0)")
@click.option("--index", default=0, show_default=True, type=click.IntRange(min=0), help="which pod of the task")
@click.option("-c", "--container", default="", help="container (default: the first)")
@pass_session
def logs(session: Session, name: str, follow: bool, task: str | None, index: int, container: str) -> None:
    """Print what a job's pod says."""
    item = job_ref.find(session, name)
    parsed = torchjob.parse(item)
    types = {each.lower(): each for each in parsed.spec.tasks}
    chosen = next(iter(types)) if task is None else task.lower()
    if chosen not in types or index >= parsed.spec.tasks[types[chosen]].num_tasks:
        sizes = ", ".join(f"{each} 0..{spec.num_tasks - 1}" for each, spec in parsed.spec.tasks.items())
        raise click.UsageError(f"job {name} has no {task or chosen} {index}; it has {sizes}")
    pod = parsed.pod_name(types[chosen], index)
    if follow:
        _wait_for_start(session, parsed.key, pod)
    for piece in session.cluster.logs(pod, parsed.key.namespace, container, follow=follow):
        sys.stdout.buffer.write(piece)
        sys.stdout.buffer.flush()


def _wait_for_start(session: Session, key: JobKey, pod: str) -> None:
    """Return once the pod has run or the job has ended without it."""
    told = ""
    while True:
        item = session.cluster.get(TORCHJOBS, key.name, key.namespace)
        phase = (item.get("status") or {}).get("phase") or "Pending"
        if phase in ("Succeeded", "Failed") or _has_started(session.cluster, key.namespace, pod):
            return
        if told != phase:
            click.echo(f"job {key.namespace}/{key.name} is {phase}; waiting for pod {pod}", err=True)
        told = phase
        time.sleep(0.5)


def _has_started(cluster: Cluster, namespace: str, pod: str) -> bool:
    try:
        return cluster.get(PODS, pod, namespace).get("status", {}).get("phase") in ("Running", "Succeeded", "Failed")
    except errors.NotFound:
        return False
