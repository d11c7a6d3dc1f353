"""Somewhere for the queues to stand: in memory, in a private redis-server, in an imitation of one.

One rule: what is started here is ended here.
"""

import contextlib
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import fakeredis

from queues import connection, errors
from tests.faults.places import MemoryPlace, RedisPlace
from tests.faults.schedules import Backend
from tests.faults.world import PlaceMaker

REDIS_SERVER = "redis-server"
_SECONDS = 60.0


@contextlib.contextmanager
def places(backend: Backend) -> Iterator[PlaceMaker]:
    """What makes a new place for each run."""
    match backend:
        case "memory":
            yield MemoryPlace
        case "fakeredis":
            client = fakeredis.FakeStrictRedis(server=fakeredis.FakeServer())
            yield partial(RedisPlace, client)
            client.close()
        case "redis":
            with _server() as url:
                client = connection.connect(url, client_name="faults")
                yield partial(RedisPlace, client)
                client.close()


@contextlib.contextmanager
def _server() -> Iterator[str]:
    if shutil.which(REDIS_SERVER) is None:
        raise SystemExit(f"schedules on redis need a {REDIS_SERVER} on PATH")
    with tempfile.TemporaryDirectory() as folder:
        socket = Path(folder) / "socket"
        command = [REDIS_SERVER, "--port", "0", "--unixsocket", str(socket), "--save", ""]
        process = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL)
        try:
            _wait(f"unix://{socket}")
            yield f"unix://{socket}"
        finally:
            process.kill()
            process.wait()


def _wait(url: str) -> None:
    client = connection.connect(url, client_name="faults")
    deadline = time.monotonic() + _SECONDS
    while True:
        try:
            with connection.translated(client):
                client.ping()
            client.close()
            return
        except errors.QueueError:
            if time.monotonic() > deadline:
                raise
