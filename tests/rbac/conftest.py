"""Fixtures with the accounts of deploy/rbac, on the embedded server and on a real server."""

from collections.abc import Iterator

import pytest

from crds.api_resources import NATIVE_POD_GROUPS
from kube import client
from kube.client import KubernetesCluster
from kube.settings import ConnectionSettings
from tests.support.coordinator import kinds
from tests.support.kube.fixtures import embedded_server, real_server
from tests.support.kube.servers import Server
from tests.support.rbac.access import Access, Gated, Granted
from tests.support.rbac.scenes import OTHERS

__all__ = ["embedded_server", "real_server"]


def _admin(server: Server) -> KubernetesCluster:
    return client.connect(ConnectionSettings(kubeconfig=str(server.kubeconfig)))


@pytest.fixture(scope="session")
def gated(embedded_server: Server) -> Iterator[Gated]:
    admin = _admin(embedded_server)
    kinds.install(admin, *OTHERS)
    yield Gated(embedded_server, admin)
    admin.close()


@pytest.fixture(scope="session")
def granted(real_server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Granted]:
    admin = _admin(real_server)
    # A definition cannot provide a kind that belongs to Kubernetes itself and that the server has disabled.
    kinds.install(admin, *(each for each in OTHERS if each != NATIVE_POD_GROUPS))
    made = Granted(real_server, admin, tmp_path_factory.mktemp("accounts"))
    yield made
    made.close()
    admin.close()


@pytest.fixture(params=["gated", pytest.param("granted", marks=pytest.mark.apiserver)])
def access(request: pytest.FixtureRequest) -> Access:
    found: Access = request.getfixturevalue(request.param)
    return found
