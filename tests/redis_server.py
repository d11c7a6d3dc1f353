"""A private redis-server, without persistence unless it is told to keep something.

One rule: on a unix socket in a folder of the test's own; it ends with the block.
"""

import contextlib
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from queues import connection, errors
from tests.waiting import until


@contextlib.contextmanager
def running(socket: Path, *arguments: str, url: str = "") -> Iterator[str]:
    """Its URL, once somebody answers there, if only to ask for a password. Skips where there is no redis-server."""
    if shutil.which("redis-server") is None:
        pytest.skip("needs a redis-server on PATH")
    url = url or f"unix://{socket}"
    command = ["redis-server", "--port", "0", "--unixsocket", str(socket), "--save", "", *arguments]
    with subprocess.Popen(command, cwd=socket.parent, stdout=subprocess.DEVNULL) as process:
        try:
            until(lambda: is_there(url))
            yield url
        finally:
            process.kill()


def is_there(url: str) -> bool:
    """Whether anybody answers."""
    try:
        return connection.answers(url)
    except errors.CredentialsRefused:
        return True
