"""Fixtures with a Redis server for the tests of one folder: `redis_url` and `client`."""

from collections.abc import Iterator

import pytest

from queues.redis import connection
from tests.support import redis_server


@pytest.fixture(scope="session")
def redis_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Run a private Redis server without persistence for the whole session, and return its URL."""
    with redis_server.running(tmp_path_factory.mktemp("redis") / "socket") as url:
        yield url


@pytest.fixture
def client(redis_url: str) -> Iterator[connection.Connection]:
    """Return a client of the private Redis server, after the server was emptied."""
    client = connection.connect(redis_url, client_name="test")
    client.flushall()
    yield client
    client.close()
