"""The report of a change that a person made: an Event on the object, with the user and the reason."""

import contextlib
import secrets
from collections.abc import Callable
from datetime import datetime
from functools import partial

from coordinator.runs import submitter
from crds import events
from kube import errors
from kube.api import Cluster, Manifest

CLUSTER_SCOPE = "default"
"""The namespace in which Kubernetes keeps the events of objects without a namespace."""
UNKNOWN_USER = "an unknown user"


def build_event(item: Manifest, code: str, change_text: str, reason: str, user: str, now: datetime) -> Manifest:
    """Build the Event. The message of the Event names the change, the user, and the reason if one was given."""
    metadata = item["metadata"]
    reference = {name: metadata[name] for name in ("name", "namespace", "uid", "resourceVersion") if name in metadata}
    about = {"apiVersion": item["apiVersion"], "kind": item["kind"], **reference}
    own = {
        "name": f"{metadata['name']}.{secrets.token_hex(8)}",
        "namespace": metadata.get("namespace") or CLUSTER_SCOPE,
    }
    return events.build(own, about, code, f"{change_text}, by {user}{': ' + reason if reason else ''}", now)


def whoami(cluster: Cluster, otherwise: Callable[[], str] = str) -> str:
    """Return the user name that the API server has for this client, else the name that `otherwise` returns."""
    for find in (partial(submitter.find, cluster), otherwise):
        with contextlib.suppress(errors.ClusterError):
            if name := find():
                return name
    return UNKNOWN_USER
