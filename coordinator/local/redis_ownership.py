"""Whether the queues in Redis belong to the cluster of this machine.

One rule: the server that `torchq local up` starts itself serves no other cluster. Another server is only used if its
queues belong to this cluster or to none.
"""

from coordinator.cache import own_installation
from coordinator.errors import LocalError
from kube.api import Cluster
from queues import installation
from queues.redis import connection, fitness

SECONDS = 5.0


def settle(cluster: Cluster, url: str, lease_namespace: str, *, is_own: bool) -> None:
    """Make the cluster the owner of its own server (`is_own`). Raise LocalError for another server whose queues belong
    to another installation; its coordinator would wait for ever."""
    own = own_installation.read(cluster, lease_namespace)
    client = connection.connect(url, client_name="torchq-local", timeout=SECONDS)
    try:
        owner = fitness.read_ownership(client).owner
        if installation.foreign(owner, own) and not is_own:
            raise LocalError(
                f"Redis at {connection.address(client)} belongs to another installation ({installation.name(owner)}): "
                "name another database with --redis, or delete the keys torchq:* in this one"
            )
        if installation.foreign(owner, own):
            fitness.adopt(client, own)
    finally:
        client.close()
