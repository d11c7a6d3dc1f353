"""A desk whose pool is made of nodes that the test plays."""

from collections.abc import Iterator

import pytest

from crds.api_resources import NODES
from kube.client import KubernetesCluster
from tests.support.coordinator import desk as desks
from tests.support.coordinator.desk import Clock, Desk


@pytest.fixture
def desk(cluster: KubernetesCluster) -> Iterator[Desk]:
    with Desk(cluster, Clock(), pool="nodes") as found:
        found.queue("a")
        found.queue("b")
        found.begin()
        yield found
    desks.clear(cluster)
    for node in cluster.list(NODES).items:
        desks.remove(cluster, NODES, node["metadata"]["name"], "")
