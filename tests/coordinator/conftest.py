"""Fixtures with a desk on an API server: real watches, a term and a reconciler over in-memory queues and a stepped
clock."""

import logging
import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from coordinator.access.readers import Reader
from coordinator.http.queue_api import QueueApi
from crds.api_resources import Resource
from kube.client import KubernetesCluster
from tests.support.coordinator import described_answers
from tests.support.coordinator.command import Torchq, command
from tests.support.coordinator.desk import Clock, Desk, clear
from tests.support.kube.fixtures import cluster, embedded_cluster, embedded_server, namespace, real_server, server
from tests.support.kube.servers import Server

__all__ = ["cluster", "embedded_cluster", "embedded_server", "namespace", "real_server", "server"]


@pytest.fixture
def desk(embedded_cluster: KubernetesCluster, clock: Clock) -> Iterator[Desk]:
    """Yield a desk on the embedded server."""
    with Desk(embedded_cluster, clock) as desk:
        yield desk


@pytest.fixture(autouse=True)
def _answers_as_described() -> Iterator[None]:
    """Check every answer of the read-only API against its description.

    The server answers in its own threads. The fixture has its own patch: the fixture `monkeypatch` would undo the
    patches of a test after `_clear`, which needs the original functions.
    """
    answer, problems = QueueApi.answer, []

    def answer_and_check(self: QueueApi, path: str, reader: Reader) -> tuple[int, Any]:
        code, document = answer(self, path, reader)
        try:
            described_answers.check(path, code, document)
        except (AssertionError, ValueError) as error:
            problems.append(f"{path}: {error}")
        return code, document

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(QueueApi, "answer", answer_and_check)
        yield
    assert problems == []


@pytest.fixture(autouse=True)
def _umask() -> Iterator[None]:
    """Restore the umask, since `torchq local up` and `down` run in the process of the tests and change its umask."""
    before = os.umask(0o022)
    os.umask(before)
    yield
    os.umask(before)


def _may_have(request: pytest.FixtureRequest, name: str) -> Callable[[Resource], bool]:
    """Return what tells of which kinds a server may have objects: of every kind if a module runs its own server."""
    server = request.getfixturevalue(name) if name in request.fixturenames else None
    return server.may_have if isinstance(server, Server) else lambda _: True


_CLEARED = set[str]()
"""The modules before which the server was cleared."""


@pytest.fixture(autouse=True)
def _clear(request: pytest.FixtureRequest) -> Iterator[None]:
    """Delete the objects of a test after the test, since informers see all namespaces and queues have no namespace.
    Before the first test of a module, delete the objects that tests of other folders have left on the same server.
    """
    names = {"cluster": "server", "embedded_cluster": "embedded_server"}
    used = [
        (request.getfixturevalue(name), _may_have(request, server))
        for name, server in names.items()
        if name in request.fixturenames
    ]
    if used and request.module.__name__ not in _CLEARED:
        _CLEARED.add(request.module.__name__)
        for each in used:
            clear(*each)
    yield
    for each in used:
        clear(*each)


@pytest.fixture
def torchq(embedded_server: Server, embedded_cluster: KubernetesCluster, namespace: str) -> Iterator[Torchq]:
    """Yield the command in the test's namespace. The log handlers are restored after the test, since coordinator and
    worker replace them.
    """
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield command({"TORCHQ_KUBECONFIG": str(embedded_server.kubeconfig), "TORCHQ_NAMESPACE": namespace})
    root.handlers[:] = handlers
    root.setLevel(level)
