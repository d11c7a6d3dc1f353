"""A node as a reconcile sees it: whether it exists, whether it is silent, and whether its pods have to leave it.

One rule: no code outside of this module reads a node's manifest. A missing node counts as deleted only if a pod has
been on it for a while. The cache of nodes may be behind the cache of pods.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from crds import node_requirements, timestamps
from crds.api_resources import NODES
from crds.node_requirements import Taint, is_inside, place_condition, read_taints
from crds.resources.amounts import NOTHING, Amounts
from crds.torchjob import demand
from crds.torchjob.jobspec import TorchJobSpec
from crds.torchjob.torchjob import TorchJob
from kube.api import Cluster, Manifest
from kube.informer import Informer
from reconcilers.views.pod_view import PodView

RESTARTS_ALL = "RestartAllContainersOnContainerExits"
"""The feature that a node declares in its status if it can restart all containers of a pod (Kubernetes 1.36)."""


@dataclass(frozen=True, slots=True)
class NodeView:
    """One node."""

    name: str
    ready: bool
    since: float | None
    """When the node became ready or silent, in seconds since the epoch."""
    open: bool
    """Whether new pods may be scheduled to the node."""
    allocatable: Amounts = field(default_factory=dict)
    """What pods may request from the node in total, including what is in use."""
    taints: tuple[Taint, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    """The labels of the node: templates select nodes by them, and ranks follow some."""
    restarts_all: bool = False
    """Whether the node can restart all containers of a pod when one of them exits with a certain code."""


class NodeCache(Protocol):
    """A current copy of the nodes (`nodes_informer`)."""

    @property
    def synced(self) -> bool:
        """Whether the first list has arrived."""

    @property
    def failing(self) -> str:
        """Why the copy may be outdated; empty while it is current."""

    def get(self, namespace: str, name: str) -> NodeView | None:
        """Return a node; None if there is no such node."""

    def values(self) -> list[NodeView]:
        """Return all nodes."""


@dataclass(frozen=True, slots=True)
class NodeHealth:
    """The state of the nodes of a job's pods."""

    dead: frozenset[str] = frozenset()
    """The names of nodes that are deleted, or silent for longer than the grace."""
    next: float | None = None
    """Seconds until the next silent node counts as dead; None if no other node is silent."""


def trim(manifest: Manifest) -> NodeView:
    """Return the view of a node."""
    conditions = manifest.get("status", {}).get("conditions") or ()
    ready: Manifest = next((condition for condition in conditions if condition.get("type") == "Ready"), {})
    return NodeView(
        name=manifest["metadata"]["name"],
        ready=ready.get("status") == "True",
        since=timestamps.seconds_or_none(ready.get("lastTransitionTime")),
        open=not (manifest.get("spec") or {}).get("unschedulable"),
        allocatable=_allocatable(manifest),
        taints=read_taints(manifest.get("spec") or {}),
        labels=manifest["metadata"].get("labels") or {},
        restarts_all=RESTARTS_ALL in (manifest.get("status", {}).get("declaredFeatures") or ()),
    )


def _allocatable(manifest: Manifest) -> Amounts:
    try:
        return demand.read_resources(manifest.get("status", {}).get("allocatable"))
    except ValueError:  # the node's capacity is not readable, so none is counted on
        return NOTHING


def nodes_informer(cluster: Cluster) -> Informer[NodeView]:
    """Return a worker process's cache of the nodes; the caller starts it."""
    return Informer(cluster, NODES, trim=trim)


def node_health(nodes: NodeCache | None, pods: Iterable[PodView], grace: float, now: float) -> NodeHealth:
    """Return the state of the nodes of some pods; empty without a synchronised cache."""
    if nodes is None or not nodes.synced:
        return NodeHealth()
    remaining = {
        name: _seconds_until_dead(nodes, name, since, grace, now) for name, since in _oldest_pod_times(pods).items()
    }
    silent = {name: seconds for name, seconds in remaining.items() if seconds is not None}
    waiting = [seconds for seconds in silent.values() if seconds > 0]
    return NodeHealth(frozenset(name for name, seconds in silent.items() if seconds <= 0), min(waiting, default=None))


def leaving(nodes: NodeCache | None, pods: Iterable[PodView], leaving_taints: Collection[str]) -> frozenset[str]:
    """Return the nodes of some pods that are about to lose their pods: not ready, closed for new pods, or tainted."""
    return frozenset(
        node.name for node in _nodes_of(nodes, pods) if not (node.ready and node.open) or _taint(node, leaving_taints)
    )


def departures(
    nodes: NodeCache | None, pods: Iterable[PodView], job: TorchJob, leaving_taints: Collection[str]
) -> Mapping[str, str]:
    """Return the nodes that pods of a job leave before they lose them, each with the reason.

    A node with one of the taints will go away with all its pods. A cordoned node may stay: its pods leave it only if
    the other nodes on which the job may run could hold the job with its least number of workers. Otherwise these pods
    would be deleted without a need. Pods that may not be evicted stay on the node.
    """
    found = _nodes_of(nodes, pods)
    doomed = {node.name: f"has the taint {key}" for node in found if (key := _taint(node, leaving_taints))}
    cordoned = {node.name: "is cordoned" for node in found if not node.open and node.name not in doomed}
    if not cordoned or job.spec.evictions == "Refuse":
        return doomed
    domain = job.admission.domain if job.admission is not None else ""
    others = [node for node in _others(nodes, {*doomed, *cordoned}, leaving_taints) if is_inside(domain, node.labels)]
    if not _could_hold(others, job.spec, job.least_charge):
        return doomed
    return doomed | cordoned


def closes_in(
    nodes: NodeCache | None, domain: str, leaving_taints: Collection[str], grace: float, now: float
) -> float | None:
    """Return the seconds until a domain counts as closed, because none of its nodes takes new pods; at most 0 if it
    does, and None while it has such a node, or that is not known.

    A node that is silent may soon take pods again: like a dead node, it counts only after the grace.
    """
    if nodes is None or not nodes.synced or nodes.failing:
        return None
    usable = (node for node in nodes.values() if node.open and not _taint(node, leaving_taints))
    inside = [node for node in usable if is_inside(domain, node.labels)]
    if any(node.ready or node.since is None for node in inside):
        return None
    return max((node.since + grace - now for node in inside if node.since is not None), default=0.0)


def labels_of(nodes: NodeCache | None, pods: Iterable[PodView]) -> Mapping[str, Mapping[str, str]]:
    """Return the labels of the nodes of some pods, by the name of the node."""
    return {node.name: node.labels for node in _nodes_of(nodes, pods) if node.labels}


def restart_obstacle(nodes: Iterable[NodeView]) -> str:
    """Return why nodes cannot restart all containers of a pod; empty if each node that takes new pods can.

    A scheduler puts pods that ask for it on no other node, so that they would have less room than pods without.
    """
    usable = [node for node in nodes if node.ready and node.open]
    lacking = sorted(node.name for node in usable if not node.restarts_all)
    if lacking:
        return f"node {lacking[0]}{_more(len(lacking) - 1)} not declare {RESTARTS_ALL}"
    return "" if usable else "no node is ready"


def _more(others: int) -> str:
    return f" and {others} more do" if others else " does"


def _nodes_of(nodes: NodeCache | None, pods: Iterable[PodView]) -> list[NodeView]:
    """Return the existing nodes of some pods, by name."""
    if nodes is None or not nodes.synced:
        return []
    names = sorted({pod.node for pod in pods if pod.node})
    return [node for name in names if (node := nodes.get("", name)) is not None]


def _taint(node: NodeView, leaving_taints: Collection[str]) -> str:
    """Return the first taint of a node that announces its end; empty if the node has no such taint."""
    return next((taint.key for taint in node.taints if taint.key in leaving_taints), "")


def _others(nodes: NodeCache | None, without: Collection[str], leaving_taints: Collection[str]) -> list[NodeView]:
    """Return the nodes that take new pods, without the given nodes."""
    found = nodes.values() if nodes is not None else []
    taking = (node for node in found if node.ready and node.open and node.name not in without)
    return [node for node in taking if not _taint(node, leaving_taints)]


def _could_hold(nodes: Sequence[NodeView], spec: TorchJobSpec, charge: Amounts) -> bool:
    """Return whether nodes could hold the pods of a job, which have this charge together, if they were empty."""
    tasks = spec.torch_task_specs.values()
    pods = ((demand.pod_charge(task), place_condition(task.template["spec"])) for task in tasks)
    return node_requirements.could_hold(nodes, pods, charge)


def ready_again(nodes: NodeCache | None, moment: float) -> float | None:
    """Return when the cluster got a ready node again, in seconds since the epoch, if no node that is ready now was
    ready at `moment`.

    The result is None if a ready node was ready then, if no node is ready, or if nothing is known.
    """
    first: float | None = None
    for node in nodes.values() if nodes is not None and nodes.synced else ():
        if node.ready:
            if node.since is None or node.since <= moment:
                return None
            first = node.since if first is None else min(first, node.since)
    return first


def fits_elsewhere(nodes: NodeCache | None, avoided: Iterable[str], spec: TorchJobSpec, domain: str = "") -> bool:
    """Return whether the nodes of the job's domain that are not avoided could hold the whole job if they were empty.

    A gang that cannot run without an avoided node must not be kept away from this node.
    """
    excluded = frozenset(avoided)
    inside = (node for node in nodes.values() if is_inside(domain, node.labels)) if nodes is not None else ()
    usable = (node for node in inside if node.ready and node.open and node.allocatable)
    return _could_hold([node for node in usable if node.name not in excluded], spec, demand.job_charge(spec))


def _oldest_pod_times(pods: Iterable[PodView]) -> dict[str, float | None]:
    """Return the nodes of some pods, each with the time since when the oldest of its pods has been there."""
    oldest: dict[str, float | None] = {}
    for pod in pods:
        if pod.node:
            times = [since for since in (oldest.get(pod.node), pod.since) if since is not None]
            oldest[pod.node] = min(times, default=None)
    return oldest


def _seconds_until_dead(nodes: NodeCache, name: str, pod_since: float | None, grace: float, now: float) -> float | None:
    """Return the seconds until a node counts as dead; None if the node is healthy or not known."""
    node = nodes.get("", name)
    if node is None:
        return None if nodes.failing or pod_since is None else pod_since + grace - now
    if node.ready or node.since is None:
        return None
    return node.since + grace - now
