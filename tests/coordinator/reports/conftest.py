"""Stores of reports for the contract, in memory, on fakeredis and on a private Redis, with a clock that tests move."""

from collections.abc import Callable, Iterator

import fakeredis
import pytest

from coordinator.reports.store import RedisReports, ReportStore
from queues.redis import connection
from tests.doubles.memory_reports import MemoryReports
from tests.support import redis_server
from tests.support.clock import Clock


@pytest.fixture
def clock() -> Clock:
    """Return a clock that moves only when a test moves it."""
    return Clock()


@pytest.fixture(scope="session")
def redis_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Run a private Redis server for the session, and return its URL."""
    with redis_server.running(tmp_path_factory.mktemp("redis") / "socket") as url:
        yield url


@pytest.fixture
def client(redis_url: str) -> Iterator[connection.Connection]:
    """Return a client of the private Redis server, which has been emptied."""
    client = connection.connect(redis_url, client_name="test")
    client.flushall()
    yield client
    client.close()


@pytest.fixture(params=["memory", "fakeredis", "redis"])
def store(request: pytest.FixtureRequest, clock: Clock) -> Iterator[ReportStore]:
    """Return an empty store in memory, on fakeredis, and on Redis."""
    match request.param:
        case "memory":
            yield MemoryReports(clock)
        case "fakeredis":
            fake = fakeredis.FakeStrictRedis(server=fakeredis.FakeServer())
            yield RedisReports(fake, clock)
            fake.close()
        case _:
            yield RedisReports(request.getfixturevalue("client"), clock)


@pytest.fixture
def lose(request: pytest.FixtureRequest, store: ReportStore) -> Callable[[], None]:
    """Return a function that loses all that the store holds."""
    if isinstance(store, MemoryReports):
        return store.lose
    return store._connection.flushall  # type: ignore[attr-defined]
