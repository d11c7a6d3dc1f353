"""One embedded cluster for all tests that leave it as they found it, and fresh ones for those that do not.

A test marked `everywhere` runs on a real API server too, where KUBEBUILDER_ASSETS names its binaries.
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
    """The shared stack, empty before and after."""
    found: Stack = request.getfixturevalue(getattr(request, "param", "shared"))
    yield found
    found.clear()


@pytest.fixture(scope="module")
def make_stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Make]:
    """Stacks of a module's own, with further options and settings; not started, ended at the end."""
    made: list[Stack] = []

    def make(*options: str, **settings: str) -> Stack:
        made.append(_make(tmp_path_factory, *options, **settings))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.fixture
def records(tmp_path: Path) -> Path:
    """A folder for pods to note their runs in."""
    folder = tmp_path / "records"
    folder.mkdir()
    return folder
