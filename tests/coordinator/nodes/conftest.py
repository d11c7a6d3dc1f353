"""A desk whose pool is made of nodes that the test plays."""

from collections.abc import Iterator
from typing import Any

import pytest

from crds.api_resources import NODES
from kube.client import KubernetesCluster
from tests.support.coordinator import desk as desks
from tests.support.coordinator.desk import Clock, Desk


@pytest.fixture
def desk_settings() -> dict[str, Any]:
    """Return the settings of the desk, beside its pool."""
    return {}


@pytest.fixture
def desk(cluster: KubernetesCluster, clock: Clock, desk_settings: dict[str, Any]) -> Iterator[Desk]:
    with Desk(cluster, clock, pool="nodes", **desk_settings) as found:
        found.queue("a")
        found.queue("b")
        found.begin()
        yield found
    desks.clear(cluster)
    for node in cluster.list(NODES).items:
        desks.remove(cluster, NODES, node["metadata"]["name"], "")
