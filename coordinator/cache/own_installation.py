"""To which installation a process belongs.

One rule: a process that may not list namespaces reads only the namespace that identifies the cluster.
"""

from coordinator.rbac.permissions import SYSTEM_NAMESPACE
from crds.api_resources import NAMESPACES
from kube.api import Cluster
from queues.installation import Installation


def read(cluster: Cluster, lease_namespace: str) -> Installation:
    """Return the installation of a cluster with this namespace of the Lease. Raises ClusterError."""
    namespace = cluster.get(NAMESPACES, SYSTEM_NAMESPACE)
    return Installation(str(namespace["metadata"]["uid"]), lease_namespace)
