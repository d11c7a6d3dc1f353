"""Events on the objects of torchq: one document for all that write them.

One rule: the name of an Event on a job is made from its text, so that the same text creates no second Event.
"""

import hashlib
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from crds import excerpts, timestamps
from crds.api_resources import EVENTS, TORCHJOBS
from crds.keys import JobKey

LONGEST = 1024
"""The most characters of an Event's message."""
COMPONENT = "torchq"


def build(
    metadata: Mapping[str, Any],
    about: Mapping[str, Any],
    reason: str,
    message: str,
    now: datetime | float,
    *,
    warning: bool = False,
    component: str = COMPONENT,
) -> dict[str, Any]:
    """Return the Event of a moment on an object. `about` is the reference to the object, with its namespace."""
    at = timestamps.format_time(now)
    return EVENTS.manifest(
        metadata,
        involvedObject=about,
        type="Warning" if warning else "Normal",
        reason=reason,
        message=excerpts.excerpt(message, LONGEST),
        source={"component": component},
        reportingComponent=component,
        firstTimestamp=at,
        lastTimestamp=at,
        count=1,
    )


def on_job(
    key: JobKey,
    reason: str,
    message: str,
    now: float,
    *,
    warning: bool = False,
    component: str = COMPONENT,
    owned: bool = False,
) -> dict[str, Any]:
    """Return the Event on a job; `now` is in seconds since the epoch.

    An `owned` Event is deleted with its job where nothing else deletes Events, as on one machine.
    """
    job = TORCHJOBS.reference(key.name, key.uid)
    digest = hashlib.sha256(f"{key.uid}/{reason}/{message}".encode()).hexdigest()[:16]
    metadata: dict[str, Any] = {"name": f"{key.name}.{digest}", "namespace": key.namespace}
    if owned:
        metadata |= {"ownerReferences": [job]}
    about = {**job, "namespace": key.namespace}
    return build(metadata, about, reason, message, now, warning=warning, component=component)
