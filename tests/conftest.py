"""Fixtures and limits for all tests.

One rule: tests neither read nor write the configuration and state folders of the user, and leave no process behind.
"""

import faulthandler
import signal
import time
from collections.abc import Iterator
from typing import Any

import pytest
from _pytest.faulthandler import fault_handler_stderr_fd_key
from hypothesis import HealthCheck, settings

from tests.support import leftovers, tiers
from tests.support.clock import Clock
from tests.support.waiting import patient

LOOK_AGAIN_SECONDS = 10.0

# By default, a property fails if one example takes 0.2 s, or if ten examples take 1 s to make. A busy machine needs
# longer.
settings.register_profile("torchq", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("torchq")


@pytest.hookimpl(tryfirst=True)  # before -m chooses tests by their marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark each test with its tier."""
    for item in items:
        item.add_marker(tiers.tier(item))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Fail a test of the lowest tier that starts a process or opens a socket."""
    with tiers.touching() as touched:
        result = yield
    if touched and tiers.tier(item) == "unit":
        pytest.fail(f"a unit test {touched[0]}; mark it, or its module, with `servers`", pytrace=False)
    return result


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: Any, request: pytest.FixtureRequest) -> Iterator[Any]:
    """Fail a test of the lowest tier whose fixture starts a process or opens a socket."""
    with tiers.touching() as touched:
        result = yield
    if touched and fixturedef.scope == "function" and tiers.tier(request.node) == "unit":
        pytest.fail(f"fixture {fixturedef.argname} of a unit test {touched[0]}; mark the test with `servers`")
    return result


@pytest.hookimpl(wrapper=True)
def pytest_timeout_set_timer(item: pytest.Item, settings: Any) -> Iterator[Any]:
    """Extend the limit of a test while the machine gives the test less than one processor."""
    made = yield
    began, expire = time.monotonic(), signal.getsignal(signal.SIGALRM)

    def look(number: int, frame: Any) -> None:
        if time.monotonic() - began < patient(settings.timeout):
            signal.setitimer(signal.ITIMER_REAL, LOOK_AGAIN_SECONDS)
        elif callable(expire):
            expire(number, frame)

    if settings.method == "signal":
        signal.signal(signal.SIGALRM, look)
    return made


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Iterator[None]:
    """End the process if a teardown hangs. The test's own limit no longer holds after its first failure."""
    seconds = float(item.config.getoption("timeout") or item.config.getini("timeout"))
    faulthandler.dump_traceback_later(
        patient(2 * seconds), exit=True, file=item.config.stash[fault_handler_stderr_fd_key]
    )
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()


@pytest.fixture(scope="session", autouse=True)
def _no_leftovers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """End all processes that tests have started when the run ends, even if the run is killed."""
    with leftovers.ended_with_this_process(tmp_path_factory.getbasetemp()):
        yield


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
def own_signals() -> Iterator[None]:
    """Give a test that sends signals or replaces handlers the signal dispositions of a shell, and restore the former
    dispositions.

    A run in the background or under nohup ignores SIGINT and SIGHUP, and every program that a test starts would ignore
    them as well. SIGHUP has a handler here, so that the run itself survives a SIGHUP; started programs get the default
    disposition.
    """
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    former = {number: signal.getsignal(number) for number in numbers}
    for number, handler in zip(numbers, (signal.default_int_handler, signal.SIG_DFL, lambda *_: None), strict=True):
        signal.signal(number, handler)
    yield
    for number, before in former.items():
        signal.signal(number, before)
