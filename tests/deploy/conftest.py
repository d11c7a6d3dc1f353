"""A separate API server for the releases of each module: nothing of torchq is installed on it."""

from collections.abc import Iterator

import pytest

from kube import client
from kube.client import KubernetesCluster
from kube.settings import ConnectionSettings
from tests.support.kube import servers
from tests.support.kube.servers import Server


@pytest.fixture(scope="module")
def bare_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with servers.real(tmp_path_factory.mktemp("bare")) as server:
        yield server


@pytest.fixture(scope="module")
def admin(bare_server: Server) -> Iterator[KubernetesCluster]:
    connected = client.connect(ConnectionSettings(kubeconfig=str(bare_server.kubeconfig)))
    yield connected
    connected.close()
