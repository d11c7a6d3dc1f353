"""Queue stores for the contract suite, in memory and on a private Redis, and a clock that tests move."""

import pytest
from hypothesis import settings

from crds.keys import JobKey
from queues.redis import codec, connection
from queues.storage.redis_store import RedisStore
from queues.store import QueueStore, StoreSettings
from queues.values import Reservation
from tests.doubles.memory_content import Content
from tests.doubles.memory_store import MemoryStore
from tests.support.clock import Clock
from tests.support.queues.private_redis import client, redis_url

__all__ = ["client", "redis_url"]

settings.register_profile("queues", deadline=None, max_examples=60)
settings.load_profile("queues")


class Place:
    """The data behind queue stores. Stores opened on one place see the same data, as two processes do."""

    def open(self, ports: tuple[int, int] | None = None) -> QueueStore:
        """Open another store on this place."""
        raise NotImplementedError

    def lose(self) -> None:
        """Delete all data of the place."""
        raise NotImplementedError

    def marked(self) -> list[tuple[JobKey, str]]:
        """Return the keys that were added to the work queue and their tenants, in order."""
        raise NotImplementedError

    def replace_reservation(self, reservation: Reservation) -> None:
        """Replace a reservation behind the back of every store. Nothing else changes."""
        raise NotImplementedError


class MemoryPlace(Place):
    def __init__(self) -> None:
        self._content = Content()
        self._marked: list[tuple[JobKey, str]] = []

    def open(self, ports: tuple[int, int] | None = None) -> QueueStore:
        return MemoryStore(lambda key, tenant: self._marked.append((key, tenant)), StoreSettings(ports), self._content)

    def lose(self) -> None:
        fresh = Content()
        for name in Content.__slots__:
            setattr(self._content, name, getattr(fresh, name))
        self._marked.clear()

    def marked(self) -> list[tuple[JobKey, str]]:
        return list(self._marked)

    def replace_reservation(self, reservation: Reservation) -> None:
        self._content.reservations[reservation.key] = reservation


class RedisPlace(Place):
    def __init__(self, client: connection.Connection, clock: Clock) -> None:
        self.client = client
        self._clock = clock

    def open(self, ports: tuple[int, int] | None = None) -> QueueStore:
        return RedisStore(self.client, StoreSettings(ports), clock=self._clock)

    def lose(self) -> None:
        self.client.flushall()

    def marked(self) -> list[tuple[JobKey, str]]:
        tenants = [tenant.decode() for tenant in self.client.lrange("torchq:work:tenants", 0, -1)]
        found = [
            (key.decode(), each) for each in tenants for key in self.client.lrange(f"torchq:work:ready:{each}", 0, -1)
        ]
        return [(JobKey.parse(key), tenant) for key, tenant in found]

    def replace_reservation(self, reservation: Reservation) -> None:
        self.client.hset("torchq:reservations", str(reservation.key), codec.encode_reservation(reservation))


@pytest.fixture(params=["memory", pytest.param("redis", marks=pytest.mark.servers)])
def place(request: pytest.FixtureRequest, clock: Clock) -> Place:
    """Return an empty place in memory and on Redis."""
    if request.param == "memory":
        return MemoryPlace()
    return RedisPlace(request.getfixturevalue("client"), clock)


@pytest.fixture
def store(place: Place) -> QueueStore:
    """Return a store that was rebuilt empty under epoch 1."""
    store = place.open()
    store.rebuild(1, [], [])
    return store
