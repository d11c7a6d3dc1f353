"""From what a user calls a job to the job.

One rule: a handle with a uid is never taken for a later job of the same name.
"""

import click

from coordinator.cli.session import Session
from crds.api_resources import TORCHJOBS
from crds.keys import JobKey
from crds.torchjob.conditions import FINISHED
from kube import errors
from kube.api import Manifest

NAME = click.argument("name", metavar="JOB")


def find(session: Session, handle: str) -> Manifest:
    """The job of a name, namespace/name or namespace/name/uid; NotFound if the uid is of an earlier job of that
    name."""
    namespace, name, uid = parts(session, handle)
    item = session.cluster.get(TORCHJOBS, name, namespace)
    if uid and item["metadata"]["uid"] != uid:
        raise errors.NotFound(f"job {handle} is gone; {namespace}/{name} is another job now")
    return item


def parts(session: Session, handle: str) -> tuple[str, str, str]:
    """Namespace, name and uid; no uid: whichever has the name."""
    match handle.split("/"):
        case [name]:
            return session.namespace, name, ""
        case [namespace, name]:
            return namespace, name, ""
        case [namespace, name, uid]:
            return namespace, name, uid
    raise click.UsageError(f"{handle!r} is not NAME, NAMESPACE/NAME or NAMESPACE/NAME/UID")


def key(item: Manifest) -> JobKey:
    """The job's key."""
    metadata = item["metadata"]
    return JobKey(metadata["namespace"], metadata["name"], metadata["uid"])


def admitted(item: Manifest) -> bool:
    """Whether the job holds room."""
    return bool((item.get("status") or {}).get("admission")) and not finished(item)


def finished(item: Manifest) -> bool:
    """Whether the job has reached its end."""
    return (item.get("status") or {}).get("phase") in FINISHED


def shown(item: Manifest) -> str:
    """The job for people."""
    return f"{item['metadata']['namespace']}/{item['metadata']['name']}"
