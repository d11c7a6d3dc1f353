"""Telling what somebody changed: an Event on the object, with who did it and why.

One rule: the change comes first and stands, whatever becomes of the Event.
"""

import contextlib
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import click

from coordinator.cli.session import Session
from crds import excerpts
from crds.api_resources import EVENTS, Resource
from kube import client, errors
from kube.api import Manifest

OWN_NAME = Resource("authentication.k8s.io", "v1", "selfsubjectreviews", "SelfSubjectReview", namespaced=False)
CLUSTER_SCOPE = "default"
"""Where Kubernetes keeps the events of objects that have no namespace."""
LONGEST = 1024
"""Characters of an event's message."""
NOBODY = "somebody"


@dataclass(frozen=True, slots=True)
class Change:
    """How a change was asked for."""

    dry_run: bool = False
    reason: str = ""


_CHANGING = (
    click.option("--dry-run", is_flag=True, help="have the API server check it, change nothing"),
    click.option("--reason", default="", metavar="TEXT", help="why; goes into the event that tells of it"),
)


def changing(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options of every command that changes something. It gets them as `dry_run` and `reason`."""
    for option in reversed(_CHANGING):
        command = option(command)
    return command


def tell(session: Session, item: Manifest, code: str, said: str, change: Change) -> None:
    """Print what was done to an object, and in which cluster; write the Event of that code."""
    if change.dry_run:
        click.echo(f"{said} on {session.cluster_word} (dry run)")
        return
    click.echo(f"{said} on {session.cluster_word}")
    try:
        body = event(item, code, said, change.reason, whoami(session), datetime.now(UTC))
        session.cluster.create(EVENTS, body, body["metadata"]["namespace"])
    except errors.ClusterError as error:
        click.echo(f"note: done, but no event tells of it: {error}", err=True)


def event(item: Manifest, code: str, said: str, reason: str, who: str, now: datetime) -> Manifest:
    """The Event. Its message says what, who, and why if that was given."""
    metadata = item["metadata"]
    at, namespace = now.strftime("%Y-%m-%dT%H:%M:%SZ"), metadata.get("namespace") or CLUSTER_SCOPE
    about = {name: metadata[name] for name in ("name", "namespace", "uid", "resourceVersion") if name in metadata}
    return {
        "apiVersion": EVENTS.api_version,
        "kind": EVENTS.kind,
        "metadata": {"name": f"{metadata['name']}.{secrets.token_hex(8)}", "namespace": namespace},
        "involvedObject": {"apiVersion": item["apiVersion"], "kind": item["kind"], **about},
        "type": "Normal",
        "reason": code,
        "message": excerpts.excerpt(f"{said}, by {who}{': ' + reason if reason else ''}", LONGEST),
        "source": {"component": "torchq"},
        "reportingComponent": "torchq",
        "firstTimestamp": at,
        "lastTimestamp": at,
        "count": 1,
    }


def whoami(session: Session) -> str:
    """Who the API server takes us for; if it does not say, the user that the kubeconfig names."""
    body = {"apiVersion": OWN_NAME.api_version, "kind": OWN_NAME.kind}
    with contextlib.suppress(errors.ClusterError):
        found = session.cluster.create(OWN_NAME, body).get("status") or {}
        if name := (found.get("userInfo") or {}).get("username"):
            return str(name)
    with contextlib.suppress(errors.ClusterError):
        return client.context_user(session.connection) or NOBODY
    return NOBODY
