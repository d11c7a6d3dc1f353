"""The tiers of tests: the tier of each test, and what a test of the lowest tier may not touch.

One rule: a test has exactly one tier. The mark of the test names its tier. Without a mark, its folder decides, and then
the fixtures that it uses.
"""

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import urllib3  # noqa: F401 - its first import binds a socket to see whether the machine has IPv6

TIERS = ("unit", "servers", "stack", "proof")
"""The tiers, from tests that touch least to tests that touch most. pyproject.toml explains each tier."""
FOLDERS = {
    "tests/acceptance": "stack",
    "tests/chaos": "proof",
    "tests/differential": "proof",
    "tests/faults": "proof",
    "tests/fuzz": "proof",
}
SERVERS = frozenset(
    {
        "access",
        "bare",
        "bare_server",
        "client_wheel",
        "embedded_one",
        "embedded_server",
        "gated",
        "granted",
        "program",
        "real_one",
        "real_server",
        "redis_url",
        "server",
        "small",
        "wheel",
    }
)
"""The fixtures that start a Redis, an API server, or a process, or that choose one of these."""
USES = ("submit", "run", "scale", "restart", "cancel", "down and up", "doctor")
"""The things that users do. For each of them, `make test` has a smoke test on a whole cluster."""
_TOUCHING = {
    "os.fork": "starts a process",
    "os.posix_spawn": "starts a process",
    "subprocess.Popen": "starts a process",
    "socket.bind": "opens a socket",
    "socket.connect": "opens a socket",
}


def tier(item: pytest.Item) -> str:
    """Return the tier of a test. Raise UsageError if its marks name several tiers."""
    named = dict.fromkeys(mark.name for mark in item.iter_markers() if mark.name in TIERS)
    if len(named) > 1:
        raise pytest.UsageError(f"{item.nodeid} has several tiers: {', '.join(named)}")
    if named:
        return next(iter(named))
    folder = "/".join(item.nodeid.split("/")[:2])
    if folder in FOLDERS:
        return FOLDERS[folder]
    return "servers" if SERVERS.intersection(getattr(item, "fixturenames", ())) else "unit"


class _Watch:
    """The actions of this thread and of the threads that began after it. Other threads belong to servers of earlier
    tests.
    """

    def __init__(self) -> None:
        self.others = frozenset(each.ident for each in threading.enumerate()) - {threading.get_ident()}
        self.seen: list[str] = []


_watch: _Watch | None = None


def _note(event: str, arguments: tuple[object, ...]) -> None:
    if _watch is not None and event in _TOUCHING and threading.get_ident() not in _watch.others:
        _watch.seen.append(f"{_TOUCHING[event]}: {arguments[:2]!r:.200}")


sys.addaudithook(_note)


@contextmanager
def touching() -> Iterator[list[str]]:
    """Yield the list of the actions within the block that start a process or open a socket. The list grows during the
    block.
    """
    global _watch  # noqa: PLW0603 - an audit hook stays for the life of the process
    before, _watch = _watch, _Watch()
    try:
        yield _watch.seen
    finally:
        _watch = before
