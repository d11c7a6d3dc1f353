"""The views of the objects that say which jobs may go, and in which order: TenantQueues, PriorityClasses, namespaces.

One rule: as in `coordinator.cache.views`. A queue that cannot be read admits nothing, and stops no other queue.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pydantic

from crds import tenantqueue
from crds.errors import InvalidObject
from crds.metadata import Metadata
from crds.tenantqueue import TenantQueue, TenantQueueSpec, TenantQueueStatus
from kube.api import Manifest

log = logging.getLogger(__name__)


def queue_view(manifest: Manifest) -> TenantQueue:
    """Parse a TenantQueue.

    A queue that cannot be read is closed, because its limits are not known. Limits without an effect, which an earlier
    version stored, are read as that version did.
    """
    try:
        return tenantqueue.read(manifest)
    except InvalidObject as error:
        name = manifest["metadata"]["name"]
        log.error("TenantQueue %s cannot be read, so it admits nothing until it is corrected: %s", name, error)
        return TenantQueue(
            metadata=Metadata.model_validate({"name": name}),
            spec=TenantQueueSpec(stop_policy="Hold"),
            status=_queue_status(manifest.get("status")),
        )


def _queue_status(status: Any) -> TenantQueueStatus:
    try:
        return TenantQueueStatus.model_validate(status or {})
    except pydantic.ValidationError:
        return TenantQueueStatus()


@dataclass(frozen=True, slots=True)
class PriorityClassView:
    """A PriorityClass and its value."""

    name: str
    value: int


def priority_class_view(manifest: Manifest) -> PriorityClassView:
    """Trim a PriorityClass."""
    value = manifest.get("value")
    return PriorityClassView(manifest["metadata"]["name"], value if isinstance(value, int) else 0)


@dataclass(frozen=True, slots=True)
class NamespaceView:
    """A namespace and its labels."""

    name: str
    uid: str
    labels: Mapping[str, str]


def namespace_view(manifest: Manifest) -> NamespaceView:
    """Trim a namespace."""
    metadata = manifest["metadata"]
    return NamespaceView(metadata["name"], str(metadata.get("uid", "")), dict(metadata.get("labels") or {}))
