"""Stores of reports for the contract, in memory, on fakeredis and on a private Redis, with a clock that tests move."""

from collections.abc import Callable, Iterator

import fakeredis
import pytest

from coordinator.reports.store import RedisReports, ReportStore
from tests.doubles.memory_reports import MemoryReports
from tests.support.clock import Clock
from tests.support.queues.private_redis import client, redis_url

__all__ = ["client", "redis_url"]


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
