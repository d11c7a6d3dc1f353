"""Clusters for acceptance tests: a shared embedded cluster for tests that clean up, and new clusters for all other
tests.

A test marked `EVERYWHERE` runs on a real API server too, if KUBEBUILDER_ASSETS names the folder of its binaries.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.acceptance.real_stack import RealStack
from tests.support.acceptance.stack import COMMANDS, Stack, fresh
from tests.support.kube.fixtures import real_server
from tests.support.kube.servers import Server

__all__ = ["real_server"]

Make = Callable[..., Stack]


def _make(factory: pytest.TempPathFactory, *options: str, **settings: str) -> Stack:
    root = factory.mktemp(fresh("stack"))
    (root / "work").mkdir()
    stack = Stack(root / "data", root / "work", settings=settings)
    if options:
        stack.options += options
    return stack


@pytest.fixture(scope="session", autouse=True)
def _commands() -> Iterator[None]:
    yield
    COMMANDS.close()


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    stack = _make(tmp_path_factory)
    try:
        said = stack.up()
        assert said.code == 0, said
        yield stack
    finally:
        stack.close()


@pytest.fixture(scope="session")
def real(real_server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealStack]:
    root = tmp_path_factory.mktemp(fresh("real"))
    (root / "work").mkdir()
    stack = RealStack(root / "data", root / "work", server=real_server)
    try:
        stack.start()
        yield stack
    finally:
        stack.close()


@pytest.fixture
def stack(request: pytest.FixtureRequest) -> Iterator[Stack]:
    """Yield the shared stack without jobs and queues, and delete the jobs and queues of the test afterwards."""
    found: Stack = request.getfixturevalue(getattr(request, "param", "shared"))
    yield found
    found.clear()


@pytest.fixture(scope="module")
def make_stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Make]:
    """Yield a function that returns a new stack. The test starts the stack, and the fixture ends it."""
    made: list[Stack] = []

    def make(*options: str, **settings: str) -> Stack:
        made.append(_make(tmp_path_factory, *options, **settings))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.fixture
def records(tmp_path: Path) -> Path:
    """Create the folder in which pods record their runs."""
    folder = tmp_path / "records"
    folder.mkdir()
    return folder
