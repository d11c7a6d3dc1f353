"""A desk of which every request is counted where it leaves the client: on the embedded server, and on a real one."""

from collections.abc import Iterator

import pytest

from cluster.client import KubernetesCluster
from tests.budgets.wire import Metered
from tests.cluster.conftest import cluster, embedded_cluster, embedded_server, namespace, real_server, server
from tests.coordinator.conftest import _clear
from tests.coordinator.desk import Clock

__all__ = ["_clear", "cluster", "embedded_cluster", "embedded_server", "namespace", "real_server", "server"]


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def line(cluster: KubernetesCluster, clock: Clock) -> Iterator[Metered]:
    """On every server there is."""
    with Metered(cluster, clock) as line:
        yield line
