"""The view that the coordinator keeps of a node, and the jobs that may lose their pods when a node changes.

One rule: pure. A node's manifest is parsed once, when the informer reads it.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from coordinator.cache.views import JobView, PodView
from crds.keys import JobKey
from crds.labels import EMBEDDED
from crds.node_requirements import Taint, is_inside, read_taints
from crds.resources.amounts import Amounts
from crds.torchjob import demand
from kube.api import Manifest

_CLOSING = frozenset({"DiskPressure", "PIDPressure", "NetworkUnavailable"})
"""The conditions of a node that keep pods away. MemoryPressure keeps away only pods that request nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeView:
    """A node as the pool sees it."""

    name: str
    ready: bool
    """Whether the node takes new pods: it is ready, open, not under pressure, and not about to go away."""
    allocatable: Amounts
    embedded: bool = False
    """Whether the node belongs to an embedded cluster, which never has a second node."""
    leaving: bool = False
    """Whether a taint says that the node is about to go away."""
    cordoned: bool = False
    keeps_pods: bool = False
    """Whether the pods on the node go on, though the node may take no new ones: its kubelet is ready, and the node is
    not about to go away."""
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()


@dataclass(frozen=True, slots=True)
class NodeFree:
    """What is free on a node, as the places of jobs on nodes have it."""

    node: NodeView
    free: Amounts
    """What the node offers, less its pods and the places of pods that are on no node yet. An amount below 0 is used
    beyond what the node offers."""
    foreign: Amounts
    """The part that foreign pods use."""


def node_view(manifest: Manifest, leaving_taints: Collection[str] = ()) -> NodeView:
    """Trim a node; `leaving_taints` are the keys of the taints of nodes that are about to go away."""
    status, spec = manifest.get("status") or {}, manifest.get("spec") or {}
    leaving = any(taint.get("key") in leaving_taints for taint in spec.get("taints") or ())
    conditions, cordoned = status.get("conditions") or [], bool(spec.get("unschedulable", False))
    true = {condition["type"] for condition in conditions if condition["status"] == "True"}
    return NodeView(
        name=manifest["metadata"]["name"],
        ready="Ready" in true and not true & _CLOSING and not cordoned and not leaving,
        allocatable=demand.read_resources(status.get("allocatable") or {}),
        embedded=(status.get("nodeInfo") or {}).get("kubeletVersion") == EMBEDDED,
        leaving=leaving,
        cordoned=cordoned,
        keeps_pods="Ready" in true and not leaving,
        labels=manifest["metadata"].get("labels") or {},
        taints=read_taints(spec),
    )


def losing_jobs(
    before: NodeView | None, after: NodeView | None, pods: Iterable[PodView], jobs: Iterable[JobView]
) -> frozenset[JobKey]:
    """Return the jobs with pods on a node that takes no more pods since a change of it, and may lose the pods, and
    those of its domain, which may lack a node for others. A node that was closed before is about to go away once the
    node has a taint that announces it.
    """
    is_leaving = before is not None and after is not None and after.leaving and not before.leaving
    if before is None or not (before.ready or is_leaving) or (after is not None and after.ready):
        return frozenset()
    admitted = ((job.key, job.admission.domain) for job in jobs if job.admission is not None and not job.finished)
    bound = {key for key, domain in admitted if domain and is_inside(domain, before.labels)}
    return frozenset(pod.job for pod in pods if pod.job is not None and pod.node == before.name) | bound
