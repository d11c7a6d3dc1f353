"""Nodes and namespaces: their schemas, defaults and validation.

One rule: clients cannot change a node's address range or provider, nor the spec of a namespace.
"""

from collections.abc import Iterator

from embedded.apiserver import status_errors
from embedded.apiserver.kinds.pod_schema import (
    CONDITIONS,
    MOMENT,
    OPEN,
    QUANTITY,
    SWITCH,
    TEXT,
    TIME,
    fields,
    keep_empty,
    list_of,
    map_of,
    merge_list,
    texts,
)
from embedded.apiserver.status_errors import Cause
from kube.api import Manifest

_TAINT = fields(key=keep_empty(TEXT), value=TEXT, effect=keep_empty(TEXT), timeAdded=TIME)
NODE = fields(
    **texts("podCIDR", "providerID", "externalID"),
    podCIDRs={**list_of(TEXT), "x-kubernetes-patch-strategy": "merge"},
    unschedulable=SWITCH,
    taints=list_of(_TAINT),
    configSource=OPEN,
)
_CONDITION = fields(
    **texts("type", "status", "reason", "message"), **dict.fromkeys(("lastHeartbeatTime", "lastTransitionTime"), MOMENT)
)
NODE_STATUS = fields(
    **dict.fromkeys(("capacity", "allocatable"), map_of(QUANTITY)),
    phase=TEXT,
    conditions=merge_list(_CONDITION, "type"),
    addresses=merge_list(fields(type=keep_empty(TEXT), address=keep_empty(TEXT)), "type"),
    daemonEndpoints=OPEN,
    nodeInfo=OPEN,
    images=list_of(OPEN),
    volumesInUse=list_of(TEXT),
    volumesAttached=list_of(OPEN),
    config=OPEN,
    runtimeHandlers=list_of(OPEN),
    features=OPEN,
    declaredFeatures=list_of(TEXT),
)
NAMESPACE = fields(finalizers=list_of(TEXT))
NAMESPACE_STATUS = fields(phase=TEXT, conditions=CONDITIONS)
_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")


def complete_node(new: Manifest, old: Manifest | None) -> None:  # noqa: ARG001
    """Add a node's podCIDR to its podCIDRs."""
    spec = new.get("spec") or {}
    if spec.get("podCIDR") and not spec.get("podCIDRs"):
        spec["podCIDRs"] = [spec["podCIDR"]]


def check_node(new: Manifest, old: Manifest | None) -> Iterator[Cause]:
    """Yield the problems of a node, or of its change."""
    spec, before = new.get("spec") or {}, (old or {}).get("spec") or {}
    for index, taint in enumerate(spec.get("taints") or ()):
        if taint.get("effect") not in _EFFECTS:
            yield status_errors.not_supported(f"spec.taints[{index}].effect", taint.get("effect", ""), _EFFECTS)
    if before.get("podCIDRs") and spec.get("podCIDRs") != before["podCIDRs"]:
        yield status_errors.not_allowed("spec.podCIDRs", 'node updates may not change podCIDR except from "" to valid')
    if before.get("providerID") and spec.get("providerID") != before["providerID"]:
        yield status_errors.not_allowed(
            "spec.providerID", 'node updates may not change providerID except from "" to valid'
        )


def complete_namespace(new: Manifest, old: Manifest | None) -> None:
    """Set the phase of a new namespace to Active, and add the label with its name."""
    if old is None:
        new["spec"], new["status"] = {"finalizers": ["kubernetes"]}, {"phase": "Active"}
    else:
        new["spec"] = old.get(
            "spec", {}
        )  # the server owns the spec, whose finalizer keeps a namespace with objects in it
    new["metadata"].setdefault("labels", {})["kubernetes.io/metadata.name"] = new["metadata"].get("name", "")


def check_namespace(new: Manifest, old: Manifest | None) -> Iterator[Cause]:
    """Yield the problems of a change of a namespace's status."""
    phase = (new.get("status") or {}).get("phase", "")
    if old is None or phase == (old.get("status") or {}).get("phase"):
        return
    deleting = "deletionTimestamp" in new["metadata"]
    expected = "Terminating" if deleting else "Active"
    if phase != expected:
        why = f"may only be '{expected}' if `deletionTimestamp` is {'not ' if deleting else ''}empty"
        yield status_errors.invalid_value("status.Phase", phase, why)
