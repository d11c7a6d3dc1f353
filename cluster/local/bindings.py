"""Binding a pod to a node.

One rule: a pod is bound once; whoever comes second is told who was first.
"""

from dataclasses import replace
from typing import Any

from cluster.api import Manifest
from cluster.local import metadata, refusals
from cluster.local.catalog import Kind
from cluster.local.objects import Stored
from crds.resources import PODS

_BINDING = replace(PODS, plural="pods/binding")
"""What refusals of a binding call it."""


def name(body: Manifest) -> str:
    """The pod a binding is for, where the path does not say. BadRequest if it says nothing."""
    own: Any = body.get("metadata") or {}
    found = own.get("name") if isinstance(own, dict) else None
    if not found or not isinstance(found, str):
        raise refusals.bad_request("a binding needs the pod's name in its metadata")
    return found


def bound(kind: Kind, current: Stored, body: Manifest, now: float) -> Manifest:
    """The pod with the binding's target as its node. Conflict if it has one already or is being deleted."""
    target: Any = body.get("target") or {}
    node = target.get("name") if isinstance(target, dict) else None
    if not node or not isinstance(node, str) or target.get("kind", "Node") not in {"Node", ""}:
        raise refusals.bad_request("a binding needs a target of kind Node with a name")
    own: Any = body.get("metadata") or {}
    if not isinstance(own, dict):
        raise refusals.bad_request("metadata is not a JSON object")
    if own.get("uid", current.uid) != current.uid:
        raise refusals.conflict(kind.resource, current.name, "the pod is another one than the binding's uid says")
    pod = current.manifest()
    if pod["spec"].get("nodeName"):
        why = f'pod {current.name} is already assigned to node "{pod["spec"]["nodeName"]}"'
        raise refusals.conflict(_BINDING, current.name, why)
    if current.deleting:
        why = f"pod {current.name} is being deleted, cannot be assigned to a host"
        raise refusals.conflict(_BINDING, current.name, why)
    pod["spec"]["nodeName"] = node
    conditions = [c for c in pod["status"].get("conditions") or () if c.get("type") != "PodScheduled"]
    scheduled = {"type": "PodScheduled", "status": "True", "lastTransitionTime": metadata.timestamp(now)}
    pod["status"]["conditions"] = [*conditions, scheduled]
    return pod
