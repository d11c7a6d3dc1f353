"""Losing what the queues hold in Redis, on purpose: what a repair begins with.

One rule: the first step makes the store lost, and every step is refused once a higher epoch is there, so that nothing
of a newer rebuild is ever lost.
"""

from collections.abc import Iterable, Iterator
from itertools import islice

from queues import redis_keys
from queues.inspection import redis_reader
from queues.inspection_values import Fault
from queues.redis.connection import Connection
from queues.redis.scripts import Script

CHUNK = 500
"""Keys lost by one script."""

_FORGET = Script("store/forget")


def store(connection: Connection, epoch: int) -> None:
    """Everything of the queues but settings and accounts; of those, what cannot be read."""
    _FORGET(connection, arguments=[epoch])
    known, unknown, _ = redis_reader.sorted_names(connection)
    held = [name for name in known if name.startswith(redis_keys.PREFIX) and not name.startswith(redis_keys.WORK)]
    kept = redis_keys.KEPT - _broken(redis_reader.store(connection).faults)
    _lose(connection, epoch, [*(name for name in held if name not in kept), *unknown])


def work(connection: Connection, epoch: int) -> None:
    """Everything of the work queue but registered workers, and every RQ job that no worker runs."""
    _FORGET(connection, arguments=[epoch])
    known, _, _ = redis_reader.sorted_names(connection)
    picture = redis_reader.work(connection)
    kept = (
        redis_keys.KEPT
        - _broken(picture.faults)
        - ({redis_keys.THREADS} if picture.threads - picture.workers.keys() else set())
    )
    held = [name for name in known if name.startswith(redis_keys.WORK) and name not in kept]
    idle = [job.id for job in picture.rq if job.where != "started"]
    lists = [redis_keys.RQ_WAITING, redis_keys.RQ_INTERMEDIATE, *redis_keys.RQ_REGISTRIES.values()]
    records = [name for each in idle for name in (f"{redis_keys.RQ_JOB}{each}", f"{redis_keys.RQ_RESULTS}{each}")]
    _lose(connection, epoch, [*held, *lists, *records, *(_broken(picture.faults) & {redis_keys.RQ_STARTED})])


def _broken(faults: Iterable[Fault]) -> set[str]:
    return {fault.where.partition(" ")[0] for fault in faults}


def _lose(connection: Connection, epoch: int, names: Iterable[str]) -> None:
    for chunk in _chunks(names):
        _FORGET(connection, arguments=[epoch, *chunk])


def _chunks(names: Iterable[str]) -> Iterator[list[str]]:
    source = iter(names)
    while chunk := list(islice(source, CHUNK)):
        yield chunk
