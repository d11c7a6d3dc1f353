"""Fixtures for test suites that need a Kubernetes API server: `server`, `cluster`, `namespace`.

`server` and `cluster` are parametrised: the embedded server always, and a real kube-apiserver where KUBEBUILDER_ASSETS
names the folder of its binaries. `embedded_server` and `embedded_cluster` provide the embedded server alone.

Tests share one client of each server: a kubeconfig and a new connection cost as much CPU time as ten requests.
"""

import itertools
from collections.abc import Iterator

import pytest

from crds import generate
from crds.api_resources import NAMESPACES
from kube import client
from kube.settings import ConnectionSettings
from tests.support.kube import servers, widgets
from tests.support.kube.servers import Server

_NUMBERS = itertools.count(1)


@pytest.fixture(scope="session")
def embedded_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with servers.embedded(tmp_path_factory.mktemp("embedded")) as server:
        servers.install(server, (widgets.DEFINITION, *generate.load()))
        yield server


@pytest.fixture(scope="session")
def real_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with servers.real(tmp_path_factory.mktemp("real")) as server:
        servers.install(server, (widgets.DEFINITION, *generate.load()))
        yield server


@pytest.fixture(scope="session", params=["embedded", pytest.param("real", marks=pytest.mark.apiserver)])
def server(request: pytest.FixtureRequest) -> Server:
    found = request.getfixturevalue(f"{request.param}_server")
    assert isinstance(found, Server)
    return found


@pytest.fixture(scope="session")
def cluster(server: Server) -> Iterator[client.KubernetesCluster]:
    yield from _connected(server)


@pytest.fixture(scope="session")
def embedded_cluster(embedded_server: Server) -> Iterator[client.KubernetesCluster]:
    yield from _connected(embedded_server)


@pytest.fixture
def namespace(request: pytest.FixtureRequest) -> str:
    """Create a namespace on the server under test and return its name."""
    wanted = "embedded_server" if "embedded_server" in request.fixturenames else "server"
    name = f"test-{next(_NUMBERS)}"
    chosen = request.getfixturevalue(wanted)
    code, _ = chosen.send(
        "POST", NAMESPACES.path(), {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    )
    assert code == 201
    return name


def _connected(server: Server) -> Iterator[client.KubernetesCluster]:
    connected = client.connect(ConnectionSettings(kubeconfig=str(server.kubeconfig)))
    try:
        yield connected
    finally:
        connected.close()
