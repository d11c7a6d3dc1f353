"""Fixtures with both clients, which use the real `torchq rpc` on an embedded API server."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.client.callers import CALLERS, Caller
from tests.support.client.programs import install
from tests.support.kube.servers import Server


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return a PATH whose `torchq` is the command of this source tree."""
    return install(tmp_path_factory.mktemp("bin"))


@pytest.fixture(scope="module", params=CALLERS)
def caller(request: pytest.FixtureRequest, program: str, embedded_server: Server) -> Iterator[Caller]:
    """Yield each of the two clients. One program serves all tests of a module."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", program)
        found = CALLERS[request.param](kubeconfig=str(embedded_server.kubeconfig))
        yield found
        found.close()


@pytest.fixture
def on_path(program: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """Let clients of a test find the program."""
    monkeypatch.setenv("PATH", program)
    return program


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Change to an empty folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path
