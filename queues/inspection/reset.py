"""Resets of what the queues hold in Redis. A repair begins with one.

One rule: the first step makes the store lost. Every step is refused once a rebuild under a higher epoch has begun, so
that no data of a newer rebuild is deleted.
"""

from collections.abc import Iterable

from queues import redis_keys
from queues.chunks import chunks
from queues.inspection import redis_reader
from queues.inspection_values import Fault
from queues.redis.connection import Connection
from queues.redis.scripts import Script

CHUNK = 500
"""The number of keys that one script deletes."""

_FORGET = Script("store/forget")


def reset_store(connection: Connection, epoch: int) -> None:
    """Delete everything of the queues but settings and accounts; of those, delete what cannot be read."""
    _FORGET(connection, arguments=[epoch])
    keys = redis_reader.classify_keys(connection)
    names = [
        name for name in keys.torchq if name.startswith(redis_keys.PREFIX) and not name.startswith(redis_keys.WORK)
    ]
    preserved = redis_keys.PRESERVED - _faulty_keys(redis_reader.read_store(connection).faults)
    _delete(connection, epoch, [*(name for name in names if name not in preserved), *keys.unknown])


def reset_work(connection: Connection, epoch: int) -> None:
    """Delete everything of the work queue but registered workers, and every RQ job that no worker runs."""
    _FORGET(connection, arguments=[epoch])
    keys = redis_reader.classify_keys(connection)
    inspection = redis_reader.read_work(connection)
    preserved = redis_keys.PRESERVED - _faulty_keys(inspection.faults)
    names = [name for name in keys.torchq if name.startswith(redis_keys.WORK) and name not in preserved]
    idle = [job.id for job in inspection.rq if job.where != "started"]
    lists = [redis_keys.RQ_WAITING, redis_keys.RQ_INTERMEDIATE, *redis_keys.RQ_REGISTRIES.values()]
    lists += [name for name in keys.torchq if redis_keys.has_batches_of_other_layout(name)]
    records = [name for job_id in idle for name in (f"{redis_keys.RQ_JOB}{job_id}", f"{redis_keys.RQ_RESULTS}{job_id}")]
    _delete(connection, epoch, [*names, *lists, *records, *(_faulty_keys(inspection.faults) & {redis_keys.RQ_STARTED})])


def _faulty_keys(faults: Iterable[Fault]) -> set[str]:
    return {fault.where.partition(" ")[0] for fault in faults}


def _delete(connection: Connection, epoch: int, names: Iterable[str]) -> None:
    for chunk in chunks(names, CHUNK):
        _FORGET(connection, arguments=[epoch, *chunk])
