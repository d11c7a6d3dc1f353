"""Whether the containers of a job can be restarted in place, which the mode InPlaceRestart is for.

One rule: commands do not know the settings of the workers, so what the cluster has decides. If that cannot be read,
nothing is said.
"""

from coordinator.routing.feasibility import Obstacle
from crds.api_resources import NODES, RECREATE_REQUESTS
from kube import errors
from kube.api import Cluster, Manifest
from reconcilers.views import node_view

MODE = "InPlaceRestart"
FIELD = "spec.torchElasticPolicy.mode"
NOT_POSSIBLE = (
    "nothing restarts containers in place here ({}, and OpenKruise is not installed): pods are replaced whenever the "
    "number of workers changes"
)


def find_obstacle(cluster: Cluster, body: Manifest, *, embedded: bool) -> Obstacle | None:
    """Return the finding about a job that asks for restarts in place, if its cluster has none; `embedded` means a local
    cluster, which has them."""
    policy = body["spec"].get("torchElasticPolicy") or {}
    if policy.get("mode") != MODE or embedded:
        return None
    try:
        if cluster.serves(RECREATE_REQUESTS):
            return None
        obstacle = node_view.restart_obstacle(map(node_view.trim, cluster.list(NODES).items))
    except errors.ClusterError:
        return None
    return Obstacle("NotInPlace", FIELD, NOT_POSSIBLE.format(obstacle), firm=False) if obstacle else None
