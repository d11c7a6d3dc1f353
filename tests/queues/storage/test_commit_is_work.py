"""A committed pick is in the work queue at once: the worker that begins the job sees the reservation."""

import json

import pytest

from crds.keys import JobKey
from queues import redis_keys
from queues.dispatch.redis_work import RedisWork
from queues.redis import connection
from queues.storage.redis_store import RedisStore
from queues.tasks import Task
from tests.doubles.memory_content import Content
from tests.doubles.memory_store import MemoryStore
from tests.doubles.memory_work import MemoryWork
from tests.support.queues.builders import START, entries, registration, reservation, run, specs


def in_memory() -> tuple[list[int], list[Task]]:
    content = Content()
    reader = MemoryStore(lambda *_: None, content=content)
    work = MemoryWork(lambda: START, reader.epoch, lambda key: reader.reservations([key]).get(key))
    store = MemoryStore(work.mark, content=content)
    store.rebuild(1, [], entries("a", 1))
    store.configure(specs(a=1), None)
    work.register(registration("worker", 4))
    idle = work.dispatch()
    list(run(store, 1))
    return [idle, work.dispatch(), work.dispatch()], work.begin(work.pop())


def on_redis(client: connection.Connection) -> tuple[list[int], list[Task]]:
    store, work = RedisStore(client), RedisWork(client)
    store.rebuild(1, [], entries("a", 1))
    store.configure(specs(a=1), None)
    work.register(registration("worker", 4))
    idle = work.dispatch()
    list(run(store, 1))
    dispatched = [idle, work.dispatch(), work.dispatch()]
    (job,) = client.lrange(redis_keys.RQ_WAITING, 0, -1)
    leases = json.loads(client.hget(b"rq:job:" + job, "data"))[2][0]
    return dispatched, work.begin([(JobKey.parse(key), token) for key, token in leases])


@pytest.mark.parametrize("place", ["memory", pytest.param("redis", marks=pytest.mark.servers)])
def test_committed_pick_is_dispatched_once_with_its_reservation(request: pytest.FixtureRequest, place: str) -> None:
    dispatched, tasks = in_memory() if place == "memory" else on_redis(request.getfixturevalue("client"))
    assert dispatched == [0, 1, 0]
    (task,) = tasks
    assert task.tenant == "a"
    assert task.reservation == reservation("a-0000", pick=1, paid=1)
