"""Stores of reports for the contract, in memory and on a private Redis, with a clock that tests move."""

from collections.abc import Callable

import pytest

from coordinator.reports.report_store import RedisReports, ReportStore
from tests.doubles.memory_reports import MemoryReports
from tests.support.clock import Clock
from tests.support.queues.private_redis import client, redis_url

__all__ = ["client", "redis_url"]


@pytest.fixture(params=["memory", pytest.param("redis", marks=pytest.mark.servers)])
def store(request: pytest.FixtureRequest, clock: Clock) -> ReportStore:
    """Return an empty store: once in memory, and once on Redis."""
    if request.param == "memory":
        return MemoryReports(clock)
    return RedisReports(request.getfixturevalue("client"), clock)


@pytest.fixture
def lose(request: pytest.FixtureRequest, store: ReportStore) -> Callable[[], None]:
    """Return a function that deletes everything in the store."""
    if isinstance(store, MemoryReports):
        return store.lose
    return store._connection.flushall  # type: ignore[attr-defined]
