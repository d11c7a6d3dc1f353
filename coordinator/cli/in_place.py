"""Whether the containers of a job can be restarted in place: what the mode InPlaceRestart and `--in-place` are for.

One rule: commands do not know the settings of the workers, so what the cluster has decides. If that cannot be read,
nothing is said.
"""

from collections.abc import Iterable
from typing import Literal

from coordinator.cache.optional_kinds import REQUESTS
from coordinator.routing.feasibility import Obstacle
from crds.torchjob.torchjob import TorchJob
from kube import errors
from kube.api import Cluster, Manifest

Driver = Literal["local", "kruise"]
"""What restarts containers of running pods: the embedded node, or OpenKruise."""
MODE = "InPlaceRestart"
FIELD = "spec.torchElasticPolicy.mode"
NOTHING = "nothing restarts containers in place here (OpenKruise is not installed)"
NOT_POSSIBLE = f"{NOTHING}: pods are replaced whenever the number of workers changes"


def drivers(cluster: Cluster, *, embedded: bool) -> tuple[Driver, ...] | None:
    """Return what restarts containers in place in a cluster; None if that cannot be read. `embedded` means a local
    cluster."""
    if embedded:
        return ("local",)
    try:
        return ("kruise",) if any(map(cluster.serves, REQUESTS)) else ()
    except errors.ClusterError:
        return None


def find_obstacle(cluster: Cluster, body: Manifest, *, embedded: bool) -> Obstacle | None:
    """Return the finding about a job that asks for restarts in place, if its cluster has none."""
    policy = body["spec"].get("torchElasticPolicy") or {}
    if policy.get("mode") != MODE or drivers(cluster, embedded=embedded) != ():
        return None
    return Obstacle("NotInPlace", FIELD, NOT_POSSIBLE, firm=False)


def replaced_tasks(job: TorchJob, tasks: Iterable[str], found: tuple[Driver, ...] | None) -> dict[str, str]:
    """Return those of some tasks whose pods cannot be restarted in place, each with the reason.

    OpenKruise only ends containers: the node starts them again, unless the pod's restartPolicy is Never.
    """
    if found is None or "local" in found:
        return {}
    if not found:
        return dict.fromkeys(tasks, NOTHING)
    never = [name for name in tasks if job.spec.tasks[name].restart_policy == "Never"]
    return {name: f"the restartPolicy of task {name} is Never" for name in never}
