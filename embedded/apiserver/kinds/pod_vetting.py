"""What the nodes of this cluster would refuse of a pod, for a client that asks before it makes one.

One rule: pure, and the rules are those of the node itself: a pod that passes here is not refused there.

A client asks by a dry run of a pod with the annotation `crds.labels.VET`. A Kubernetes API server does not know it and
answers as always.
"""

from collections.abc import Iterator, Sequence

from crds import labels
from crds.resources import quantities
from crds.resources.amounts import Amounts
from crds.torchjob import demand
from embedded import affinity, pod_requirements
from embedded.apiserver.status_errors import Cause
from embedded.pod import NONSENSE
from kube.api import Manifest

_REASON = "FieldValueNotSupported"


def vet(pod: Manifest, nodes: Sequence[Manifest]) -> Iterator[Cause]:
    """Everything that no embedded node would run, if the pod asks for it to be told and there is such a node."""
    ours = [node for node in nodes if _embedded(node)]
    if not ours or labels.VET not in (pod["metadata"].get("annotations") or {}):
        return
    spec = pod["spec"]
    for problem in pod_requirements.problems(spec):
        field, _, detail = problem.partition(" ")
        yield Cause(field.rstrip(":"), detail, _REASON)
    try:
        yield from _misplaced(pod, ours)
    except NONSENSE as error:
        yield Cause("spec", f"cannot be read: {error}", _REASON)


def _embedded(node: Manifest) -> bool:
    info = (node.get("status") or {}).get("nodeInfo") or {}
    return bool(info.get("kubeletVersion") == labels.EMBEDDED)


def _misplaced(pod: Manifest, nodes: Sequence[Manifest]) -> Iterator[Cause]:
    """Why the pod would never be on any of the nodes."""
    wanted = demand.pod_demand(pod["spec"])
    offers = [demand.amounts((node.get("status") or {}).get("allocatable")) for node in nodes]
    objections = [
        affinity.objection(pod["spec"], node["metadata"]["name"], node["metadata"].get("labels") or {})
        for node in nodes
    ]
    if all(pod_requirements.short(wanted, each) for each in offers):
        for name in pod_requirements.short(wanted, offers[0]):
            yield Cause("spec.containers", _too_much(name, wanted, offers[0]), _REASON)
    if all(objections):
        yield Cause("spec", objections[0], _REASON)


def _too_much(name: str, wanted: Amounts, offered: Amounts) -> str:
    asked, there = (quantities.text(name, each.get(name, 0)) for each in (wanted, offered))
    return f"a pod asks for {asked} of {name}, and the whole node has {there}"
