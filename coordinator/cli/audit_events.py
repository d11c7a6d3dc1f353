"""The report of a change that a command made: an Event on the object, with the user and the reason.

One rule: the change comes first and stays, even if the Event cannot be written.
"""

import contextlib
import secrets
from dataclasses import dataclass
from datetime import UTC, datetime

import click

from coordinator.cli import output
from coordinator.cli.session import Session
from coordinator.runs import submitter
from crds import excerpts, timestamps
from crds.api_resources import EVENTS, TORCHJOBS
from kube import client, errors
from kube.api import Manifest

CLUSTER_SCOPE = "default"
"""The namespace in which Kubernetes keeps the events of objects without a namespace."""
MOST_CHARACTERS = 1024
"""The most characters of an event's message."""
UNKNOWN_USER = "an unknown user"


@dataclass(frozen=True, slots=True)
class ChangeOptions:
    """The options of a command that changes an object."""

    dry_run: bool = False
    reason: str = ""


change_options = output.as_value(
    "change",
    ChangeOptions,
    click.option("--dry-run", is_flag=True, help="validate on the API server, change nothing"),
    click.option("--reason", default="", metavar="TEXT", help="reason for the change, recorded in the event"),
)
"""Adds the options of every command that changes an object, which gets them as `change`."""


def change_job(
    session: Session, job: Manifest, patch: Manifest, code: str, change_text: str, change: ChangeOptions
) -> Manifest:
    """Patch a job, report the change, and return the changed job."""
    metadata = job["metadata"]
    # The uid keeps the patch from a job of the same name that was submitted in the meantime.
    patch = {**patch, "metadata": {**patch.get("metadata", {}), "uid": metadata["uid"]}}
    after = session.cluster.patch(TORCHJOBS, metadata["name"], patch, metadata["namespace"], dry_run=change.dry_run)
    report(session, after, code, f"job {metadata['namespace']}/{metadata['name']} {change_text}", change)
    return after


def report(session: Session, item: Manifest, code: str, change_text: str, change: ChangeOptions) -> None:
    """Print the change and in which cluster, then write an Event with that reason code."""
    if change.dry_run:
        click.echo(f"{change_text} on {session.cluster_name} (dry run)")
        return
    click.echo(f"{change_text} on {session.cluster_name}")
    try:
        body = build_event(item, code, change_text, change.reason, whoami(session), datetime.now(UTC))
        session.cluster.create(EVENTS, body, body["metadata"]["namespace"])
    except errors.ClusterError as error:
        click.echo(f"note: the change is done, but its event could not be written: {error}", err=True)


def build_event(item: Manifest, code: str, change_text: str, reason: str, user: str, now: datetime) -> Manifest:
    """Build the Event. The message of the Event names the change, the user, and the reason if one was given."""
    metadata = item["metadata"]
    timestamp, namespace = timestamps.format_time(now), metadata.get("namespace") or CLUSTER_SCOPE
    reference = {name: metadata[name] for name in ("name", "namespace", "uid", "resourceVersion") if name in metadata}
    return {
        "apiVersion": EVENTS.api_version,
        "kind": EVENTS.kind,
        "metadata": {"name": f"{metadata['name']}.{secrets.token_hex(8)}", "namespace": namespace},
        "involvedObject": {"apiVersion": item["apiVersion"], "kind": item["kind"], **reference},
        "type": "Normal",
        "reason": code,
        "message": excerpts.excerpt(f"{change_text}, by {user}{': ' + reason if reason else ''}", MOST_CHARACTERS),
        "source": {"component": "torchq"},
        "reportingComponent": "torchq",
        "firstTimestamp": timestamp,
        "lastTimestamp": timestamp,
        "count": 1,
    }


def whoami(session: Session) -> str:
    """Return the user name that the API server reports for this account, else the user of the kubeconfig."""
    with contextlib.suppress(errors.ClusterError):
        if name := submitter.find(session.cluster):
            return name
    with contextlib.suppress(errors.ClusterError):
        return client.context_user(session.connection) or UNKNOWN_USER
    return UNKNOWN_USER
