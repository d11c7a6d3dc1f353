"""Losing what the queues hold in Redis, on purpose: what a repair begins with.

One rule: the first step makes the store lost, and every step is refused once a higher epoch is there, so that nothing
of a newer rebuild is ever lost.
"""

from collections.abc import Iterable, Iterator
from itertools import islice

from queues import redis_picture, schema
from queues.connection import Connection
from queues.picture import Fault
from queues.scripts import Script

CHUNK = 500
"""Keys lost by one script."""

_FORGET = Script("forget")


def store(connection: Connection, epoch: int) -> None:
    """Everything of the queues but settings and accounts; of those, what cannot be read."""
    _FORGET(connection, arguments=[epoch])
    known, unknown, _ = redis_picture.sorted_names(connection)
    held = [name for name in known if name.startswith(schema.PREFIX) and not name.startswith(schema.WORK)]
    kept = schema.KEPT - _broken(redis_picture.store(connection).faults)
    _lose(connection, epoch, [*(name for name in held if name not in kept), *unknown])


def work(connection: Connection, epoch: int) -> None:
    """Everything of the work queue but registered workers, and every RQ job that no worker runs."""
    _FORGET(connection, arguments=[epoch])
    known, _, _ = redis_picture.sorted_names(connection)
    picture = redis_picture.work(connection)
    kept = (
        schema.KEPT
        - _broken(picture.faults)
        - ({schema.THREADS} if picture.threads - picture.workers.keys() else set())
    )
    held = [name for name in known if name.startswith(schema.WORK) and name not in kept]
    idle = [job.id for job in picture.rq if job.where != "started"]
    lists = [schema.RQ_WAITING, schema.RQ_INTERMEDIATE, *schema.RQ_REGISTRIES.values()]
    records = [name for each in idle for name in (f"{schema.RQ_JOB}{each}", f"{schema.RQ_RESULTS}{each}")]
    _lose(connection, epoch, [*held, *lists, *records, *(_broken(picture.faults) & {schema.RQ_STARTED})])


def _broken(faults: Iterable[Fault]) -> set[str]:
    return {fault.where.partition(" ")[0] for fault in faults}


def _lose(connection: Connection, epoch: int, names: Iterable[str]) -> None:
    for chunk in _chunks(names):
        _FORGET(connection, arguments=[epoch, *chunk])


def _chunks(names: Iterable[str]) -> Iterator[list[str]]:
    source = iter(names)
    while chunk := list(islice(source, CHUNK)):
        yield chunk
