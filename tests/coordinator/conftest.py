"""A front desk on an API server: the real watches, term and reconciler over queues in memory and a stepped clock."""

import logging
import os
from collections.abc import Iterator

import pytest

from kube.client import KubernetesCluster
from tests.support.coordinator.command import Torchq, command
from tests.support.coordinator.desk import Clock, Desk, clear
from tests.support.kube.fixtures import cluster, embedded_cluster, embedded_server, namespace, real_server, server
from tests.support.kube.servers import Server

__all__ = ["cluster", "embedded_cluster", "embedded_server", "namespace", "real_server", "server"]


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def desk(embedded_cluster: KubernetesCluster, clock: Clock) -> Iterator[Desk]:
    """On the embedded server."""
    with Desk(embedded_cluster, clock) as desk:
        yield desk


@pytest.fixture(autouse=True)
def _umask() -> Iterator[None]:
    """`torchq local up` and `down` change the umask of their process, which is the tests' own here."""
    before = os.umask(0o022)
    os.umask(before)
    yield
    os.umask(before)


@pytest.fixture(autouse=True)
def _clear(request: pytest.FixtureRequest) -> Iterator[None]:
    """What a test made is gone after it: informers see all namespaces, and queues have none."""
    names = ("cluster", "embedded_cluster")
    used = [request.getfixturevalue(name) for name in names if name in request.fixturenames]
    yield
    for each in used:
        clear(each)


@pytest.fixture
def torchq(embedded_server: Server, embedded_cluster: KubernetesCluster, namespace: str) -> Iterator[Torchq]:
    """The command, in the test's own namespace. A process's command takes over the log; here it is one of many."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield command({"TORCHQ_KUBECONFIG": str(embedded_server.kubeconfig), "TORCHQ_NAMESPACE": namespace})
    root.handlers[:] = handlers
    root.setLevel(level)
