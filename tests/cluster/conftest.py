"""API servers for the suites of this folder and of any that wants a cluster: `server`, `cluster`, `namespace`.

`server` and `cluster` are parametrised: the embedded server always, a real kube-apiserver where KUBEBUILDER_ASSETS
names its binaries. `embedded_server` and `embedded_cluster` are the embedded one alone.
"""

import itertools
import time
from collections.abc import Iterator

import pytest

from cluster import client
from cluster.settings import ConnectionSettings
from crds import generate
from crds.resources import CRDS, NAMESPACES
from tests.cluster import servers, widgets
from tests.cluster.servers import Server

_NUMBERS = itertools.count(1)


@pytest.fixture(scope="session")
def embedded_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with servers.embedded(tmp_path_factory.mktemp("embedded")) as server:
        _install(server)
        yield server


@pytest.fixture(scope="session")
def real_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with servers.real(tmp_path_factory.mktemp("real")) as server:
        _install(server)
        yield server


@pytest.fixture(scope="session", params=["embedded", pytest.param("real", marks=pytest.mark.apiserver)])
def server(request: pytest.FixtureRequest) -> Server:
    found = request.getfixturevalue(f"{request.param}_server")
    assert isinstance(found, Server)
    return found


@pytest.fixture
def cluster(server: Server) -> Iterator[client.KubernetesCluster]:
    yield from _connected(server)


@pytest.fixture
def embedded_cluster(embedded_server: Server) -> Iterator[client.KubernetesCluster]:
    yield from _connected(embedded_server)


@pytest.fixture
def namespace(request: pytest.FixtureRequest) -> str:
    """A new namespace on the server under test."""
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


def _install(server: Server) -> None:
    for definition in (widgets.DEFINITION, *generate.load()):
        code, answer = server.send("POST", CRDS.path() + "?fieldValidation=Strict", definition)
        assert code == 201, answer
        _wait_established(server, definition["metadata"]["name"])


def _wait_established(server: Server, name: str) -> None:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        _, found = server.send("GET", CRDS.path(name=name))
        conditions = {c["type"]: c["status"] for c in (found.get("status", {}).get("conditions") or [])}
        if conditions.get("Established") == "True":
            return
        time.sleep(0.05)
    raise AssertionError(f"{name} was not established")
