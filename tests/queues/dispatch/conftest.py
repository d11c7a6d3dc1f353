"""Work queues for the contract suite, in memory and on a private Redis, and a clock that tests move."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import pytest

from crds.keys import JobKey
from queues import redis_keys
from queues.dispatch.redis_work import RedisWork
from queues.redis import codec, connection
from queues.tasks import Task
from queues.values import Reservation
from queues.work import Lease, WorkSink, WorkSource
from tests.doubles.memory_work import MemoryWork
from tests.support.clock import Clock
from tests.support.queues.work_stage import Stage


class Work(WorkSource, WorkSink, Protocol):
    """Both interfaces of a work queue: the interface of the coordinator and the interface of the workers."""


class Stand:
    """A work queue, its clock, and its environment: the epoch and the reservations of the store, and RQ's list."""

    def __init__(self, work: Work, clock: Clock) -> None:
        self.work = work
        self.clock = clock

    def set_epoch(self, epoch: int) -> None:
        raise NotImplementedError

    def reserve(self, reservation: Reservation) -> None:
        raise NotImplementedError

    def lose(self) -> None:
        """Delete all data of the store."""
        raise NotImplementedError

    def pop(self) -> list[Lease]:
        """Return the next batch, as RQ passes it to a worker."""
        raise NotImplementedError

    def pop_all(self) -> list[Lease]:
        """Return the leases of all batches pushed so far."""
        leases: list[Lease] = []
        while batch := self.pop():
            leases += batch
        return leases

    def take(self) -> list[Task]:
        """Dispatch keys, begin to work on all of them, and return their tasks."""
        self.work.dispatch()
        return self.work.begin(self.pop_all())


class MemoryStand(Stand):
    def __init__(self, clock: Clock) -> None:
        self.epoch = 1
        self.held: dict[JobKey, Reservation] = {}
        self.memory = MemoryWork(clock, lambda: self.epoch, self.held.get)
        super().__init__(self.memory, clock)

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def reserve(self, reservation: Reservation) -> None:
        self.held[reservation.key] = reservation

    def lose(self) -> None:
        self.epoch = 0
        self.held.clear()
        self.memory.clear()

    def pop(self) -> list[Lease]:
        return self.memory.pop()


class RedisStand(Stand):
    def __init__(self, client: connection.Connection, clock: Clock) -> None:
        self.client = client
        super().__init__(RedisWork(client, clock=clock), clock)
        self.set_epoch(1)

    def set_epoch(self, epoch: int) -> None:
        self.client.mset({redis_keys.EPOCH: epoch, redis_keys.LAYOUT: redis_keys.LAYOUT_NUMBER})

    def reserve(self, reservation: Reservation) -> None:
        self.client.hset(redis_keys.RESERVATIONS, str(reservation.key), codec.encode_reservation(reservation))

    def lose(self) -> None:
        self.client.flushall()

    def pop(self) -> list[Lease]:
        job = self.client.lpop(redis_keys.RQ_WAITING)
        if job is None:
            return []
        data = json.loads(self.client.hget(b"rq:job:" + job, "data"))
        self.client.delete(b"rq:job:" + job)
        return [(JobKey.parse(key), token) for key, token in data[2][0]]


@pytest.fixture(params=["memory", pytest.param("redis", marks=pytest.mark.servers)])
def stand(request: pytest.FixtureRequest) -> Stand:
    """Return an empty work queue in memory and on Redis."""
    if request.param == "memory":
        return MemoryStand(Clock())
    return RedisStand(request.getfixturevalue("client"), Clock())


@pytest.fixture
def stage(redis_url: str, tmp_path: Path) -> Iterator[Stage]:
    """Return a stage on an empty Redis."""
    stage = Stage(redis_url, tmp_path)
    stage.reset()
    yield stage
    stage.close()
