"""References to jobs: NAME, NAMESPACE/NAME or NAMESPACE/NAME/UID, as users write them.

One rule: a reference with a uid never matches a later job of the same name.
"""

import click

from coordinator.cli.session import Session
from coordinator.follow import job_objects
from crds.keys import JobKey
from kube.api import Manifest


def find(session: Session, handle: str) -> Manifest:
    """Read the job that a reference names. Raises NotFound if the uid belongs to an earlier job of that name."""
    return job_objects.read(session.cluster, JobKey(*parse(session, handle)))


def parse(session: Session, handle: str) -> tuple[str, str, str]:
    """Split a reference into namespace, name and uid. Without a uid, any job of that name matches."""
    match handle.split("/"):
        case [name]:
            return session.namespace, name, ""
        case [namespace, name]:
            return namespace, name, ""
        case [namespace, name, uid]:
            return namespace, name, uid
    raise click.UsageError(f"{handle!r} is not NAME, NAMESPACE/NAME or NAMESPACE/NAME/UID")


def key(item: Manifest) -> JobKey:
    """Return the key of a job."""
    return JobKey.of(item)
