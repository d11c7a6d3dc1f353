"""Vetting of a pod: the errors for which the nodes of this cluster would refuse it.

One rule: pure, and the rules are those of the node itself: the node does not refuse a pod that this module accepts.

A client requests it by a dry run of a pod with the annotation `crds.labels.VET`. A Kubernetes API server ignores the
annotation.
"""

from collections.abc import Iterator, Sequence

from crds import labels
from crds.resources import quantities
from crds.torchjob import demand
from embedded import affinity, pod_requirements
from embedded.apiserver.status_errors import Cause
from embedded.pod import INVALID_SPEC_ERRORS
from kube.api import Manifest

_REASON = "FieldValueNotSupported"


def vet(pod: Manifest, nodes: Sequence[Manifest]) -> Iterator[Cause]:
    """Yield all errors for which every embedded node would refuse the pod.

    Yield nothing if the pod lacks the annotation, or the cluster has no embedded node.
    """
    embedded_nodes = [node for node in nodes if _is_embedded(node)]
    if not embedded_nodes or labels.VET not in (pod["metadata"].get("annotations") or {}):
        return
    spec = pod["spec"]
    if spec.get("nodeName"):
        yield Cause("spec.nodeName", pod_requirements.OWN_NODE, _REASON)
    for problem in pod_requirements.problems(spec):
        field, _, detail = problem.partition(" ")
        yield Cause(field.rstrip(":"), detail, _REASON)
    try:
        yield from _placement_problems(pod, embedded_nodes)
    except INVALID_SPEC_ERRORS as error:
        yield Cause("spec", f"cannot be read: {error}", _REASON)


def _is_embedded(node: Manifest) -> bool:
    info = (node.get("status") or {}).get("nodeInfo") or {}
    return bool(info.get("kubeletVersion") == labels.EMBEDDED)


def _placement_problems(pod: Manifest, nodes: Sequence[Manifest]) -> Iterator[Cause]:
    """Yield the reasons why the pod fits on none of the nodes."""
    demanded = demand.pod_demand(pod["spec"])
    offers = [demand.read_resources((node.get("status") or {}).get("allocatable")) for node in nodes]
    objections = [
        affinity.objection(pod["spec"], node["metadata"]["name"], node["metadata"].get("labels") or {})
        for node in nodes
    ]
    if all(pod_requirements.shortages(demanded, offer) for offer in offers):
        for name in pod_requirements.shortages(demanded, offers[0]):
            asked, offered = (quantities.format_amount(name, amounts.get(name, 0)) for amounts in (demanded, offers[0]))
            message = f"a pod asks for {asked} of {name}, and the whole node has {offered}"
            yield Cause("spec.containers", message, _REASON)
    if all(objections):
        yield Cause("spec", objections[0], _REASON)
