"""Nodes and namespaces: their shape, what is filled in, and what is wrong with one.

One rule: where things are does not change under them: a node's addresses and a namespace's contents are fixed.
"""

from collections.abc import Iterator
from typing import Any

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
    kept,
    many,
    mapping,
    merged,
    texts,
)
from embedded.apiserver.status_errors import Cause
from kube.api import Manifest

_TAINT = fields(key=kept(TEXT), value=TEXT, effect=kept(TEXT), timeAdded=TIME)
NODE = fields(
    **texts("podCIDR", "providerID", "externalID"),
    podCIDRs={**many(TEXT), "x-kubernetes-patch-strategy": "merge"},
    unschedulable=SWITCH,
    taints=many(_TAINT),
    configSource=OPEN,
)
_CONDITION = fields(
    **texts("type", "status", "reason", "message"), **dict.fromkeys(("lastHeartbeatTime", "lastTransitionTime"), MOMENT)
)
NODE_STATUS = fields(
    **dict.fromkeys(("capacity", "allocatable"), mapping(QUANTITY)),
    phase=TEXT,
    conditions=merged(_CONDITION, "type"),
    addresses=merged(fields(type=kept(TEXT), address=kept(TEXT)), "type"),
    daemonEndpoints=OPEN,
    nodeInfo=OPEN,
    images=many(OPEN),
    volumesInUse=many(TEXT),
    volumesAttached=many(OPEN),
    config=OPEN,
    runtimeHandlers=many(OPEN),
    features=OPEN,
    declaredFeatures=many(TEXT),
)
NAMESPACE = fields(finalizers=many(TEXT))
NAMESPACE_STATUS = fields(phase=TEXT, conditions=CONDITIONS)
_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")


def complete_node(new: Manifest, old: Manifest | None) -> None:  # noqa: ARG001
    """A node's one range of addresses is the first of all."""
    spec = new.get("spec") or {}
    if spec.get("podCIDR") and not spec.get("podCIDRs"):
        spec["podCIDRs"] = [spec["podCIDR"]]


def check_node(new: Manifest, old: Manifest | None) -> Iterator[Cause]:
    """What is wrong with a node, or with the change of one."""
    spec, before = new.get("spec") or {}, (old or {}).get("spec") or {}
    for index, taint in enumerate(spec.get("taints") or ()):
        yield from _check_taint(taint, f"spec.taints[{index}]")
    if before.get("podCIDRs") and spec.get("podCIDRs") != before["podCIDRs"]:
        yield status_errors.not_allowed("spec.podCIDRs", 'node updates may not change podCIDR except from "" to valid')
    if before.get("providerID") and spec.get("providerID") != before["providerID"]:
        yield status_errors.not_allowed(
            "spec.providerID", 'node updates may not change providerID except from "" to valid'
        )


def _check_taint(taint: dict[str, Any], path: str) -> Iterator[Cause]:
    if taint.get("effect") not in _EFFECTS:
        yield status_errors.unsupported(f"{path}.effect", taint.get("effect", ""), _EFFECTS)


def complete_namespace(new: Manifest, old: Manifest | None) -> None:
    """A new namespace is Active; its name is among its labels."""
    if old is None:
        new["spec"], new["status"] = {"finalizers": ["kubernetes"]}, {"phase": "Active"}
    else:
        new["spec"] = old.get("spec", {})  # which is the server's: it holds what the namespace contains
    new["metadata"].setdefault("labels", {})["kubernetes.io/metadata.name"] = new["metadata"].get("name", "")


def check_namespace(new: Manifest, old: Manifest | None) -> Iterator[Cause]:
    """What is wrong with the change of a namespace's status."""
    phase = (new.get("status") or {}).get("phase", "")
    if old is None or phase == (old.get("status") or {}).get("phase"):
        return
    leaving = "deletionTimestamp" in new["metadata"]
    if phase != ("Terminating" if leaving else "Active"):
        wanted = "Terminating" if leaving else "Active"
        why = f"may only be '{wanted}' if `deletionTimestamp` is {'not ' if leaving else ''}empty"
        yield status_errors.wrong("status.Phase", phase, why)
