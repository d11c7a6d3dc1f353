"""`torchq submit` and `torchq job`: from a file to a finished job, seen from the user's side.

One rule: the client only asks. Once the handle is printed the job lives in the cluster, whatever becomes of the client.
"""

import sys
import time
from datetime import datetime
from typing import Any

import click

from cluster import errors
from cluster.api import Cluster, Manifest
from coordinator import output, submission
from coordinator.session import Session, pass_session
from crds import labels, torchjob
from crds.keys import JobKey
from crds.resources import PODS, TORCHJOBS

FORM = click.option("-o", "form", type=click.Choice(["json", "yaml"]), help="print whole objects for programs")
NAME = click.argument("name", metavar="JOB")


@click.command()
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option("--dry-run", is_flag=True, help="check only")
@pass_session
def submit(session: Session, files: tuple[str, ...], dry_run: bool) -> None:
    """Submit the TorchJobs of YAML files (`-`: standard input), all or none; prints each job's namespace/name/uid."""
    documents = submission.read(files, session.namespace, submission.folder())
    if not documents:
        raise submission.BadManifest(f"{', '.join(files)}: no TorchJob in it")
    for key in submission.submit(session.cluster, documents, dry_run=dry_run):
        click.echo(key)
    if dry_run:
        click.echo(f"{len(documents)} valid, nothing created (dry run)")


@click.group()
def job() -> None:
    """Show and steer jobs. JOB is a name, namespace/name, or the handle that `submit` printed."""


@job.command("list")
@click.option("-A", "--all-namespaces", is_flag=True, help="jobs of every namespace")
@click.option("--queue", help="only jobs of this queue")
@click.option("--no-headers", is_flag=True, help="leave the header line out")
@FORM
@pass_session
def list_jobs(session: Session, all_namespaces: bool, queue: str | None, no_headers: bool, form: str | None) -> None:
    """List jobs."""
    items = session.cluster.list(TORCHJOBS, "" if all_namespaces else session.namespace).items
    items = [item for item in items if queue is None or _queue(item) == queue]
    if form:
        output.show({"apiVersion": "v1", "kind": "List", "items": items}, form)
        return
    header = ("NAMESPACE", "NAME", "QUEUE", "PHASE", "PODS", "AGE", "RUNTIME")
    text = output.columns(header, [_row(item) for item in items])
    click.echo(text.partition("\n")[2] if no_headers else text)


def _queue(item: Manifest) -> str:
    return str((item["spec"].get("schedulingPolicy") or {}).get("queue") or item["metadata"]["namespace"])


def _row(item: Manifest) -> tuple[object, ...]:
    status = item.get("status") or {}
    wanted = sum(task.get("numTasks", 1) for task in item["spec"]["torchTaskSpecs"].values())
    active = sum((task or {}).get("active", 0) for task in (status.get("taskStatuses") or {}).values())
    ended = status.get("completionTime")
    return (
        item["metadata"]["namespace"],
        item["metadata"]["name"],
        _queue(item),
        status.get("phase") or "Pending",
        f"{active}/{wanted}",
        output.age(item["metadata"]["creationTimestamp"], output.now()),
        output.age(status.get("startTime"), datetime.fromisoformat(ended) if ended else output.now()),
    )


@job.command()
@NAME
@FORM
@pass_session
def show(session: Session, name: str, form: str | None) -> None:
    """Show one job: state, conditions, pods."""
    item = _get(session, name)
    if form:
        output.show(item, form)
        return
    for title, value in _facts(item):
        click.echo(f"{title + ':':<12}{value}")
    conditions = (item.get("status") or {}).get("conditions") or []
    if conditions:
        rows = [
            (c["type"], c["status"], c.get("reason", ""), c["lastTransitionTime"], c.get("message", ""))
            for c in conditions
        ]
        click.echo("\n" + output.columns(("CONDITION", "STATUS", "REASON", "SINCE", "MESSAGE"), rows))
    pods = _pods(session.cluster, item)
    if pods:
        click.echo("\n" + output.columns(("POD", "PHASE", "NODE", "RESTARTS", "EXIT"), [_pod_row(pod) for pod in pods]))


def _facts(item: Manifest) -> list[tuple[str, object]]:
    metadata, status = item["metadata"], item.get("status") or {}
    admission = status.get("admission") or {}
    facts: list[tuple[str, object]] = [
        ("Job", JobKey(metadata["namespace"], metadata["name"], metadata["uid"])),
        ("Queue", _queue(item)),
        ("Phase", status.get("phase") or "Pending"),
        ("Submitted", metadata["creationTimestamp"]),
        ("Started", status.get("startTime") or "-"),
        ("Completed", status.get("completionTime") or "-"),
        ("Restarts", status.get("restartCount", 0)),
    ]
    if admission:
        facts.append(
            (
                "Admission",
                f"attempt {admission['attempt']}, epoch {admission['epoch']}, at {admission.get('admittedAt', '-')}",
            )
        )
        facts.append(("Charge", ", ".join(f"{name}={amount}" for name, amount in admission.get("charge", {}).items())))
    return facts


def _pods(cluster: Cluster, item: Manifest) -> list[Manifest]:
    metadata = item["metadata"]
    return cluster.list(PODS, metadata["namespace"], label_selector=f"{labels.JOB_UID}={metadata['uid']}").items


def _pod_row(pod: Manifest) -> tuple[object, ...]:
    status = pod.get("status") or {}
    states = status.get("containerStatuses") or []
    ended = [state["state"]["terminated"] for state in states if "terminated" in (state.get("state") or {})]
    phase = "Terminating" if "deletionTimestamp" in pod["metadata"] else status.get("phase", "Pending")
    exits = ",".join(f"{each['exitCode']} ({each.get('reason', '')})" for each in ended) or "-"
    restarts = sum(state.get("restartCount", 0) for state in states)
    return (pod["metadata"]["name"], phase, pod["spec"].get("nodeName", "-"), restarts, exits)


@job.command()
@NAME
@pass_session
def cancel(session: Session, name: str) -> None:
    """Delete a job: its pods end, its charge is freed."""
    item = _get(session, name)
    metadata = item["metadata"]
    session.cluster.delete(TORCHJOBS, metadata["name"], metadata["namespace"], uid=metadata["uid"])
    click.echo(f"job {metadata['namespace']}/{metadata['name']} cancelled")


@job.command()
@NAME
@pass_session
def suspend(session: Session, name: str) -> None:
    """Take a job's pods away and free its charge; it keeps its age."""
    _patch(session, name, {"spec": {"suspend": True}})
    click.echo(f"job {name} suspended")


@job.command()
@NAME
@pass_session
def resume(session: Session, name: str) -> None:
    """Put a suspended job back in its queue."""
    _patch(session, name, {"spec": {"suspend": False}})
    click.echo(f"job {name} resumed")


@job.command()
@NAME
@click.option("-f", "--follow", is_flag=True, help="wait for the start and print until the end")
@click.option("--task", help="task type (default: the one of rank 0)")
@click.option("--index", default=0, show_default=True, type=click.IntRange(min=0), help="which pod of the task")
@click.option("-c", "--container", default="", help="container (default: the first)")
@pass_session
def logs(session: Session, name: str, follow: bool, task: str | None, index: int, container: str) -> None:
    """Print what a job's pod says."""
    item = _get(session, name)
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


def _patch(session: Session, name: str, patch: dict[str, Any]) -> None:
    metadata = _get(session, name)["metadata"]
    session.cluster.patch(TORCHJOBS, metadata["name"], patch, metadata["namespace"])


def _get(session: Session, handle: str) -> Manifest:
    """The job of a name, namespace/name or namespace/name/uid; NotFound if the uid is of an earlier job of that
    name."""
    *namespace, name = handle.split("/")[:2]
    uid = handle.split("/")[2] if handle.count("/") == 2 else ""
    if handle.count("/") > 2:
        raise click.UsageError(f"{handle!r} is not NAME, NAMESPACE/NAME or NAMESPACE/NAME/UID")
    item = session.cluster.get(TORCHJOBS, name, namespace[0] if namespace else session.namespace)
    if uid and item["metadata"]["uid"] != uid:
        raise errors.NotFound(f"job {handle} is gone; {item['metadata']['namespace']}/{name} is another job now")
    return item
