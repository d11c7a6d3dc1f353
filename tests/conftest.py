"""Fixtures for all tests. Tests neither read nor write the configuration and state folders of the user."""

import signal
from collections.abc import Iterator

import pytest

from tests.support.clock import Clock


@pytest.fixture(scope="session", autouse=True)
def _own_folders(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Set separate folders, so that tests neither use nor change the current cluster of the user."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("XDG_CONFIG_HOME", "XDG_STATE_HOME"):
            patch.setenv(name, str(tmp_path_factory.mktemp(name.lower())))
        yield


@pytest.fixture
def clock() -> Clock:
    """Return a clock that moves only when a test moves it."""
    return Clock()


@pytest.fixture
def restored_signals() -> Iterator[None]:
    """Restore the signal handlers of this process after a test that replaces them; RQ's workers do."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in handlers.items():
        signal.signal(number, handler)
