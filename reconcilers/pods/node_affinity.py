"""The nodes that a pod avoids, the node that it prefers, on which its job was placed, and the domain that it requires.

One rule: the template's own node constraints and preferences stay in force.

The leader admits a job once there is an assignment of its pods to nodes. Schedulers know nothing of this assignment,
and kube-scheduler spreads pods by default: without a hint, small pods go to nodes that are kept whole for large ones.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from crds.torchjob.tasks import WORKER
from crds.torchjob.torchjob import TorchJob
from queues.placement import pod_nodes
from reconcilers.pods.task_members import PodMember

HOSTNAME = "kubernetes.io/hostname"
WEIGHT = 100
"""The weight of a preference: the highest that Kubernetes allows."""
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def places(job: TorchJob, members: Iterable[PodMember], nodes: str) -> Mapping[str, str]:
    """Return the node on which each pod was placed, by the pod's name, from the text of the job's reservation.

    Alike pods take the nodes in the order of their tasks and indexes. A pod that is created anew is placed as before.
    """
    if not nodes:
        return {}
    shapes = {each.task_type: (each.share, each.place) for each in job.first_pods}
    # The leader numbers the shapes of which pods start, and then that of further workers.
    started = [shapes[each.task_type] for each in job.first_pods if each.pods]
    further = [shapes[WORKER]] if WORKER in shapes else []
    numbers = {shape: number for number, shape in enumerate(dict.fromkeys(started + further))}
    left = {number: iter(found) for number, found in pod_nodes.read(nodes).items()}
    placed = {}
    for member in members:
        kind = numbers.get(shapes[member.task_type]) if member.task_type in shapes else None
        if kind in left and (node := next(left[kind], "")):
            placed[member.name] = node
    return placed


def prefer(spec: dict[str, Any], node: str) -> None:
    """Make a fresh copy of a template prefer a node, by its name: the label with the name of its host may differ."""
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
    _add_preference(spec, term)


def require(spec: dict[str, Any], domain: str) -> None:
    """Make a fresh copy of a template require the nodes of the job's domain (`Admission.domain`); empty: any."""
    label, _, value = domain.partition("=")
    if domain:
        _require(spec, {"key": label, "operator": "In", "values": [value]})


def avoid(spec: dict[str, Any], nodes: Iterable[str], *, strictly: bool) -> None:
    """Make a fresh copy of a template avoid nodes: as a requirement with `strictly`, else as a preference."""
    names = sorted(nodes)
    if not names:
        return
    constraint = {"key": HOSTNAME, "operator": "NotIn", "values": names}
    if strictly:
        _require(spec, constraint)
    else:
        _add_preference(spec, {"matchExpressions": [constraint]})


def _require(spec: dict[str, Any], constraint: dict[str, Any]) -> None:
    """Add a constraint to the required affinity. Its terms are alternatives, so each term gets the constraint."""
    affinity, node = _node_affinity(spec)
    terms = (node.get(REQUIRED) or {}).get("nodeSelectorTerms")
    # An empty term matches no node. With the constraint it would match some, so it is left out.
    narrowed = [_add_expression(term, constraint) for term in terms or () if term]
    node[REQUIRED] = {"nodeSelectorTerms": narrowed or terms or [_add_expression({}, constraint)]}
    spec["affinity"] = affinity | {"nodeAffinity": node}


def _add_preference(spec: dict[str, Any], term: dict[str, Any]) -> None:
    affinity, node = _node_affinity(spec)
    node[PREFERRED] = [*(node.get(PREFERRED) or ()), {"weight": WEIGHT, "preference": term}]
    spec["affinity"] = affinity | {"nodeAffinity": node}


def _node_affinity(spec: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return copies of the affinity of a pod and of its node affinity."""
    affinity = dict(spec.get("affinity") or {})
    return affinity, dict(affinity.get("nodeAffinity") or {})


def _add_expression(term: dict[str, Any], expression: dict[str, Any]) -> dict[str, Any]:
    return term | {"matchExpressions": [*(term.get("matchExpressions") or ()), expression]}
