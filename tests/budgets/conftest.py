"""Fixtures with a desk that counts every request of its client, on the embedded server and on a real server."""

from collections.abc import Iterator

import pytest

from coordinator.cache import optional_kinds
from kube.client import KubernetesCluster
from tests.coordinator.conftest import _clear
from tests.support.coordinator.desk import Clock
from tests.support.kube.fixtures import cluster, embedded_cluster, embedded_server, namespace, real_server, server
from tests.support.metered import Metered

__all__ = ["_clear", "cluster", "embedded_cluster", "embedded_server", "namespace", "real_server", "server"]


@pytest.fixture(autouse=True)
def _asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the coordinator look for missing kinds only once, however slow the machine is."""
    monkeypatch.setattr(optional_kinds, "LOOK_SECONDS", 3600.0)


@pytest.fixture
def line(cluster: KubernetesCluster, clock: Clock) -> Iterator[Metered]:
    """Yield a counting desk on each kind of server."""
    with Metered(cluster, clock) as line:
        yield line
