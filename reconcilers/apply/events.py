"""The Event that reports to a job's owner.

One rule: its name is made from its text, so that a repeated reconcile creates no second one.
"""

import hashlib

from crds import excerpts, timestamps
from crds.api_resources import EVENTS, TORCHJOBS
from crds.keys import JobKey
from kube.api import Manifest
from reconcilers.values import EmitEvent

LONGEST = 1024
"""The largest number of characters of an event's message."""


def manifest(key: JobKey, event: EmitEvent, now: float, *, owned: bool = False) -> Manifest:
    """Return the Event on a job; `now` is in seconds since the epoch.

    An `owned` Event is deleted with its job where nothing else deletes Events, as on one machine.
    """
    job = {"apiVersion": TORCHJOBS.api_version, "kind": TORCHJOBS.kind, "name": key.name, "uid": key.uid}
    at = timestamps.format_time(now)
    digest = hashlib.sha256(f"{key.uid}/{event.reason}/{event.message}".encode()).hexdigest()[:16]
    return {
        "apiVersion": EVENTS.api_version,
        "kind": EVENTS.kind,
        "metadata": {
            "name": f"{key.name}.{digest}",
            "namespace": key.namespace,
            **({"ownerReferences": [job]} if owned else {}),
        },
        "involvedObject": {**job, "namespace": key.namespace},
        "type": "Warning" if event.warning else "Normal",
        "reason": event.reason,
        "message": excerpts.excerpt(event.message, LONGEST),
        "source": {"component": "torchq"},
        "reportingComponent": "torchq",
        "firstTimestamp": at,
        "lastTimestamp": at,
        "count": 1,
    }
