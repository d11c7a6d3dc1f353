"""The report of a change that a person made: an Event on the object, with the user and the reason."""

import contextlib
import secrets
from collections.abc import Callable
from datetime import datetime
from functools import partial

from coordinator.runs import submitter
from crds import excerpts, timestamps
from crds.api_resources import EVENTS
from kube import errors
from kube.api import Cluster, Manifest

CLUSTER_SCOPE = "default"
"""The namespace in which Kubernetes keeps the events of objects without a namespace."""
MOST_CHARACTERS = 1024
"""The most characters of an event's message."""
UNKNOWN_USER = "an unknown user"


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


def whoami(cluster: Cluster, otherwise: Callable[[], str] = str) -> str:
    """Return the user name that the API server has for this client, else the name that `otherwise` returns."""
    for find in (partial(submitter.find, cluster), otherwise):
        with contextlib.suppress(errors.ClusterError):
            if name := find():
                return name
    return UNKNOWN_USER
