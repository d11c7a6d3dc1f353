"""Whether the containers of a job can be restarted in place, which the mode InPlaceRestart is for.

One rule: commands do not know the settings of the workers, so the drivers that the cluster has decide. If the cluster
cannot be read, no driver is reported.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from coordinator.cache.optional_kinds import REQUESTS
from coordinator.routing.feasibility import Obstacle
from crds.api_resources import NODES
from crds.torchjob.torchjob import TorchJob
from kube import errors
from kube.api import Cluster, Manifest
from reconcilers.views import node_view

MODE = "InPlaceRestart"
FIELD = "spec.torchElasticPolicy.mode"
NOTHING = "nothing restarts containers in place here ({}, and OpenKruise is not installed)"
NOT_POSSIBLE = "{}: pods are replaced whenever the number of workers changes"


@dataclass(frozen=True, slots=True)
class Found:
    """The drivers that restart containers of running pods in a cluster."""

    driver: Literal["local", "kubernetes", "kruise", ""]
    """The embedded node, the nodes of Kubernetes, or OpenKruise; empty if nothing does."""
    nothing: str = ""
    """The sentence that nothing does, with the reason."""


def find_driver(cluster: Cluster, *, embedded: bool) -> Found | None:
    """Return the drivers of restarts in place in a cluster; None if the cluster cannot be read. `embedded` means a
    local cluster.
    """
    if embedded:
        return Found("local")
    try:
        has_kruise = any(map(cluster.serves, REQUESTS))
        obstacle = node_view.restart_obstacle(map(node_view.trim, cluster.list(NODES).items))
    except errors.ClusterError:
        return None
    if not obstacle:
        return Found("kubernetes")
    return Found("kruise") if has_kruise else Found("", NOTHING.format(obstacle))


def find(cluster: Cluster, body: Manifest, *, embedded: bool) -> Iterator[Obstacle]:
    """Yield the finding about a job that asks for restarts in place, if its cluster has no driver for these
    restarts."""
    policy = body["spec"].get("torchElasticPolicy") or {}
    found = find_driver(cluster, embedded=embedded) if policy.get("mode") == MODE else None
    if found is not None and not found.driver:
        yield Obstacle("NotInPlace", FIELD, NOT_POSSIBLE.format(found.nothing), firm=False)


def replaced_tasks(job: TorchJob, tasks: Iterable[str], found: Found | None) -> dict[str, str]:
    """Return the tasks, of those given, whose pods cannot be restarted in place, each with the reason.

    OpenKruise only ends containers: the node starts them again, unless the pod's restartPolicy is Never.
    """
    if found is None or found.driver in ("local", "kubernetes"):
        return {}
    if not found.driver:
        return dict.fromkeys(tasks, found.nothing)
    never = [name for name in tasks if job.spec.tasks[name].restart_policy == "Never"]
    return {name: f"the restartPolicy of task {name} is Never" for name in never}
