"""Backends of the queues: in memory, on a private Redis server, or on fakeredis.

One rule: this module ends every server that it starts.
"""

import contextlib
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from queues.redis import connection
from tests.doubles.fake_redis import FakeRedis
from tests.faults.places import MemoryPlace, RedisPlace
from tests.faults.schedules import Backend
from tests.faults.world import PlaceMaker
from tests.support import redis_server


@contextlib.contextmanager
def places(backend: Backend) -> Iterator[PlaceMaker]:
    """Yield the function that makes a new place for each run."""
    match backend:
        case "memory":
            yield MemoryPlace
        case "fakeredis":
            client = FakeRedis()
            yield partial(RedisPlace, client)
            client.close()
        case "redis":
            with _server() as url:
                client = connection.connect(url, client_name="faults")
                yield partial(RedisPlace, client)
                client.close()


@contextlib.contextmanager
def _server() -> Iterator[str]:
    if redis_server.find_program() is None:
        raise SystemExit(f"a run on redis {redis_server.NONE}")
    with tempfile.TemporaryDirectory() as folder, redis_server.running(Path(folder) / "socket") as url:
        yield url
