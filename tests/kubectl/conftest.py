"""Fixtures for kubectl. `kubectl` uses its own namespace on the embedded server and, where KUBEBUILDER_ASSETS names the
binaries, on a real server. `node_kubectl` uses only the embedded cluster, with a node that runs pods.
"""

import itertools
from collections.abc import Iterator

import pytest

from crds import generate
from crds.api_resources import NAMESPACES
from embedded.node.node import running_node
from kube import client
from kube.settings import ConnectionSettings
from tests.support.embedded.stage import SETTINGS
from tests.support.kube import servers
from tests.support.kube.servers import Server
from tests.support.kubectl.command import Kubectl

_NUMBERS = itertools.count(1)


@pytest.fixture(scope="package")
def embedded_one(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with servers.embedded(tmp_path_factory.mktemp("embedded")) as server:
        servers.install(server, generate.load())
        yield server


@pytest.fixture(scope="package")
def real_one(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with servers.real(tmp_path_factory.mktemp("real")) as server:
        servers.install(server, generate.load())
        yield server


@pytest.fixture(scope="package", params=["embedded", pytest.param("real", marks=pytest.mark.apiserver)])
def server(request: pytest.FixtureRequest) -> Server:
    found = request.getfixturevalue(f"{request.param}_one")
    assert isinstance(found, Server)
    return found


@pytest.fixture(scope="package")
def home(tmp_path_factory: pytest.TempPathFactory) -> object:
    return tmp_path_factory.mktemp("home")


@pytest.fixture
def kubectl(server: Server, home: object) -> Kubectl:
    return _in_namespace(server, home)


@pytest.fixture
def embedded_kubectl(embedded_one: Server, home: object) -> Kubectl:
    return _in_namespace(embedded_one, home)


@pytest.fixture(scope="package")
def node_server(embedded_one: Server) -> Iterator[Server]:
    """Run a node of the embedded server in this process."""
    cluster = client.connect(ConnectionSettings(kubeconfig=str(embedded_one.kubeconfig)))
    with running_node(cluster, servers.Layout(embedded_one.kubeconfig.parent), SETTINGS):
        yield embedded_one
    cluster.close()


@pytest.fixture
def node_kubectl(node_server: Server, home: object) -> Kubectl:
    return _in_namespace(node_server, home)


def _in_namespace(server: Server, home: object) -> Kubectl:
    name = f"kubectl-{next(_NUMBERS)}"
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    assert server.send("POST", NAMESPACES.path(), body)[0] == 201
    return Kubectl(server.kubeconfig, home, name, server.embedded)
