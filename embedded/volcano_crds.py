"""Volcano's resources on the embedded cluster: PodGroup, Queue, and the queue of PodGroups that name no queue.

One rule: the schemas describe the fields that torchq reads, and all other fields are stored unchanged. So the embedded
cluster accepts objects that are written for Volcano.
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
    """Create or update both definitions, and create the queue `default` if it does not exist.

    Raise ClusterError on failure.
    """
    for definition in (pod_group(), queue()):
        define(cluster, definition)
    if _create_default_queue(cluster):
        cluster.patch(GANG_QUEUES, DEFAULT_QUEUE, {"status": {"state": OPEN}}, subresource="status")


def define(cluster: Cluster, definition: Manifest) -> None:
    """Create or update a CustomResourceDefinition. Raise ClusterError on failure."""
    try:
        cluster.create(CRDS, definition)
    except errors.AlreadyExists:
        cluster.patch(CRDS, definition["metadata"]["name"], {"spec": definition["spec"]})


def _create_default_queue(cluster: Cluster) -> bool:
    """Create the queue `default`; return False if it exists.

    A kube-apiserver serves a kind only some moments after its definition is created, so NotFound is tried again.
    """
    body = GANG_QUEUES.manifest({"name": DEFAULT_QUEUE}, spec={"weight": 1})
    deadline, pause = time.monotonic() + _SERVED_SECONDS, threading.Event()
    while True:
        try:
            cluster.create(GANG_QUEUES, body)
            return True
        except errors.AlreadyExists:
            return False
        except errors.NotFound:
            if time.monotonic() > deadline:
                raise
        pause.wait(_SOON_SECONDS)


def pod_group() -> Manifest:
    """Return the definition of PodGroup. As in Volcano, the definition has no status subresource."""
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
    """Return the definition of Queue."""
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
    """Return the schema of an object with these fields and any other fields."""
    return {"type": "object", "properties": properties, "x-kubernetes-preserve-unknown-fields": True}


def _definition(
    resource: Resource,
    short_names: list[str],
    spec: dict[str, Any],
    status: dict[str, Any],
    columns: list[dict[str, Any]],
    subresources: dict[str, Any],
) -> Manifest:
    root = {"type": "object", "properties": {"spec": {**spec, "default": {}}, "status": status}}
    return definitions.definition(resource, short_names, root, columns, subresources)
