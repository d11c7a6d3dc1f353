"""Volcano's nouns on the embedded cluster: PodGroup and Queue, and the queue every PodGroup is in that names none.

One rule: as much of their schemas as somebody here reads, the rest kept as it comes; so what is written for Volcano is
taken as it is.
"""

import threading
import time
from typing import Any

from crds.api_resources import CRDS, GANG_QUEUES, POD_GROUPS, Resource
from crds.schema import definitions
from crds.schema.definitions import AGE, column
from kube import errors
from kube.api import Cluster, Manifest

DEFAULT_QUEUE = "default"
OPEN = "Open"
"""The state of a queue whose pod groups may begin."""

_SERVED_SECONDS = 10.0
_SOON_SECONDS = 0.1
_LARGEST = 2**31 - 1
_COUNT = {"type": "integer", "format": "int32", "minimum": 0, "maximum": _LARGEST}
_QUANTITIES = {
    "type": "object",
    "additionalProperties": {"x-kubernetes-int-or-string": True, "anyOf": [{"type": "integer"}, {"type": "string"}]},
}
_TEXT = {"type": "string"}


def install(cluster: Cluster) -> None:
    """Create or update both definitions, and the queue `default` if it is not there. ClusterError."""
    for definition in (pod_group(), queue()):
        try:
            cluster.create(CRDS, definition)
        except errors.AlreadyExists:
            cluster.patch(CRDS, definition["metadata"]["name"], {"spec": definition["spec"]})
    if _made(cluster):
        cluster.patch(GANG_QUEUES, DEFAULT_QUEUE, {"status": {"state": OPEN}}, subresource="status")


def _made(cluster: Cluster) -> bool:
    """Make the queue; whether it was not there. kube-apiserver serves a kind some moments after its definition."""
    deadline, pause = time.monotonic() + _SERVED_SECONDS, threading.Event()
    while True:
        try:
            cluster.create(GANG_QUEUES, _default_queue())
            return True
        except errors.AlreadyExists:
            return False
        except errors.NotFound:
            if time.monotonic() > deadline:
                raise
        pause.wait(_SOON_SECONDS)


def pod_group() -> Manifest:
    """The definition of PodGroup. It has no status subresource: its status is written with the object, as Volcano's."""
    spec = _open(
        minMember=_COUNT,
        minTaskMember={"type": "object", "additionalProperties": _COUNT},
        minResources=_QUANTITIES,
        queue={**_TEXT, "default": DEFAULT_QUEUE, "maxLength": 253},
        priorityClassName=_TEXT,
    )
    condition = _open(**dict.fromkeys(("type", "status", "reason", "message", "transitionID"), _TEXT))
    status = _open(
        phase={**_TEXT, "enum": ["Pending", "Inqueue", "Running", "Unknown", "Completed"]},
        **dict.fromkeys(("running", "succeeded", "failed"), _COUNT),
        conditions={"type": "array", "items": condition},
    )
    columns = [
        column("STATUS", ".status.phase"),
        column("minMember", ".spec.minMember", "integer"),
        column("RUNNINGS", ".status.running", "integer"),
        {**AGE, "name": "AGE"},
        column("QUEUE", ".spec.queue", wide=True),
    ]
    return _definition(POD_GROUPS, ["pg", "podgroup-v1beta1"], spec, status, columns, {})


def queue() -> Manifest:
    """The definition of Queue."""
    spec = _open(
        weight={**_COUNT, "default": 1, "minimum": 1, "maximum": 65535},
        capability=_QUANTITIES,
        reclaimable={"type": "boolean"},
    )
    status = _open(state=_TEXT)
    columns = [
        column("WEIGHT", ".spec.weight", "integer"),
        column("STATE", ".status.state"),
        {**AGE, "name": "AGE"},
    ]
    return _definition(GANG_QUEUES, ["q", "queue-v1beta1"], spec, status, columns, {"status": {}})


def _open(**properties: dict[str, Any]) -> dict[str, Any]:
    """An object with these fields and whatever else."""
    return {"type": "object", "properties": properties, "x-kubernetes-preserve-unknown-fields": True}


def _definition(
    resource: Resource,
    short: list[str],
    spec: dict[str, Any],
    status: dict[str, Any],
    columns: list[dict[str, Any]],
    subresources: dict[str, Any],
) -> Manifest:
    root = {"type": "object", "properties": {"spec": {**spec, "default": {}}, "status": status}}
    return definitions.definition(resource, short, root, columns, subresources)


def _default_queue() -> Manifest:
    return {
        "apiVersion": GANG_QUEUES.api_version,
        "kind": GANG_QUEUES.kind,
        "metadata": {"name": DEFAULT_QUEUE},
        "spec": {"weight": 1},
    }
