"""A node as a reconcile sees it: whether it is there, and whether it is silent.

One rule: nothing beyond this module reads a node's manifest. A node that is missing is gone only for pods that have
been on it for a while: the nodes' cache may be behind the pods'.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import reduce
from typing import Protocol

from crds.api_resources import NODES
from crds.resources.amounts import JOBS, NOTHING, Amounts, add
from crds.torchjob import demand
from crds.torchjob.jobspec import TorchJobSpec
from kube.api import Cluster, Manifest
from kube.informer import Informer
from reconcilers.views import timestamps
from reconcilers.views.pod_view import PodView


@dataclass(frozen=True, slots=True)
class NodeView:
    """One node."""

    name: str
    ready: bool
    since: float | None
    """When it became ready or silent, in seconds since the epoch."""
    open: bool
    """Whether new pods may come to it."""
    allocatable: Amounts = field(default_factory=dict)
    """What pods may ask of it, whoever uses it now."""


class NodeCache(Protocol):
    """A current copy of the nodes (`nodes_informer`)."""

    @property
    def synced(self) -> bool:
        """Whether the first list is in."""

    @property
    def failing(self) -> str:
        """Why it may be behind; empty while all is well."""

    def get(self, namespace: str, name: str) -> NodeView | None:
        """One node; None if there is no such node."""

    def values(self) -> list[NodeView]:
        """All nodes."""


@dataclass(frozen=True, slots=True)
class Sight:
    """What the nodes of a job's pods are up to."""

    dead: frozenset[str] = frozenset()
    """Gone, or silent for longer than the grace."""
    next: float | None = None
    """Seconds until another one that is silent will be dead."""


def trim(manifest: Manifest) -> NodeView:
    """What is kept of a node."""
    found = manifest.get("status", {}).get("conditions") or ()
    ready: Manifest = next((each for each in found if each.get("type") == "Ready"), {})
    return NodeView(
        name=manifest["metadata"]["name"],
        ready=ready.get("status") == "True",
        since=timestamps.seconds(ready.get("lastTransitionTime")),
        open=not (manifest.get("spec") or {}).get("unschedulable"),
        allocatable=_allocatable(manifest),
    )


def _allocatable(manifest: Manifest) -> Amounts:
    try:
        return demand.amounts(manifest.get("status", {}).get("allocatable"))
    except ValueError:  # nobody can say what it has: nothing is counted on
        return NOTHING


def nodes_informer(cluster: Cluster) -> Informer[NodeView]:
    """The cache a worker process keeps of the nodes; to be started by whoever wires."""
    return Informer(cluster, NODES, trim=trim)


def sight(nodes: NodeCache | None, pods: Iterable[PodView], grace: float, now: float) -> Sight:
    """What is known of the nodes that pods are on; nothing without a cache that can be believed."""
    if nodes is None or not nodes.synced:
        return Sight()
    left = {name: _left(nodes, name, since, grace, now) for name, since in _places(pods).items()}
    known = {name: seconds for name, seconds in left.items() if seconds is not None}
    waiting = [seconds for seconds in known.values() if seconds > 0]
    return Sight(frozenset(name for name, seconds in known.items() if seconds <= 0), min(waiting, default=None))


def ready_again(nodes: NodeCache | None, moment: float) -> float | None:
    """When there was a ready node again, in seconds since the epoch, if none of those that are ready now was ready at a
    moment; None if one was, or if there is none, or nothing is known."""
    first: float | None = None
    for node in nodes.values() if nodes is not None and nodes.synced else ():
        if node.ready:
            if node.since is None or node.since <= moment:
                return None
            first = node.since if first is None else min(first, node.since)
    return first


def elsewhere(nodes: NodeCache | None, avoided: Iterable[str], spec: TorchJobSpec) -> bool:
    """Whether the nodes that are left would have room for the whole job, were they empty: a gang that cannot do without
    a node is not to be kept away from it."""
    kept = frozenset(avoided)
    every = nodes.values() if nodes is not None else []
    others = [each.allocatable for each in every if each.ready and each.open and each.name not in kept]
    together = reduce(add, others, NOTHING)
    pods = [demand.pod_charge(task) for task in spec.torch_task_specs.values()]
    single = all(any(_covers(node, pod) for node in others) for pod in pods)
    return single and _covers(together, {**demand.job_charge(spec), JOBS: 0})


def _covers(room: Amounts, asked: Amounts) -> bool:
    return all(room.get(name, 0) >= amount for name, amount in asked.items())


def _places(pods: Iterable[PodView]) -> dict[str, float | None]:
    """The nodes of pods, and since when the oldest of their pods has been there."""
    found: dict[str, float | None] = {}
    for pod in pods:
        if pod.node:
            known = [since for since in (found.get(pod.node), pod.since) if since is not None]
            found[pod.node] = min(known, default=None)
    return found


def _left(nodes: NodeCache, name: str, pod_since: float | None, grace: float, now: float) -> float | None:
    """Seconds until a node is dead; None for one that is well, or of which nothing is known."""
    node = nodes.get("", name)
    if node is None:
        return None if nodes.failing or pod_since is None else pod_since + grace - now
    if node.ready or node.since is None:
        return None
    return node.since + grace - now
