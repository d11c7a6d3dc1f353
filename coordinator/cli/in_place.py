"""Whether the containers of a job can be restarted in place, which the mode InPlaceRestart is for.

One rule: commands do not know the settings of the workers, so what the cluster has decides. If that cannot be read,
nothing is said.
"""

from coordinator.routing.feasibility import Obstacle
from crds.api_resources import RECREATE_REQUESTS
from kube import errors
from kube.api import Cluster, Manifest

MODE = "InPlaceRestart"
FIELD = "spec.torchElasticPolicy.mode"
NOT_POSSIBLE = (
    "nothing restarts containers in place here (OpenKruise is not installed): pods are replaced whenever the number of "
    "workers changes"
)


def find_obstacle(cluster: Cluster, body: Manifest, *, embedded: bool) -> Obstacle | None:
    """Return the finding about a job that asks for restarts in place, if its cluster has none; `embedded` means a local
    cluster, which has them."""
    policy = body["spec"].get("torchElasticPolicy") or {}
    if policy.get("mode") != MODE or embedded:
        return None
    try:
        is_possible = cluster.serves(RECREATE_REQUESTS)
    except errors.ClusterError:
        return None
    return None if is_possible else Obstacle("NotInPlace", FIELD, NOT_POSSIBLE, firm=False)
