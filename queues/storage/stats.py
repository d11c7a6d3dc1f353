"""The numbers about queues and dispatch that `torchq status` shows.

One rule: a few plain reading commands at one moment, however many jobs wait.
"""

from dataclasses import dataclass, field
from typing import Any

from queues import redis_keys
from queues.redis.connection import Connection, read_atomically, translate_parse_errors


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueStats:
    """The numbers of one moment. `picks` and `runs` only rise, so two readings give a rate."""

    at: float
    """The time by the server's clock, in seconds since 1970."""
    epoch: int
    """The epoch of the last rebuild; 0 if the store is empty or lost."""
    picks: int
    """The number of picks ever committed."""
    runs: int
    """The number of reconcile runs that workers have ever finished."""
    ready: int
    """The number of keys that wait for a worker."""
    delayed: int
    """The number of keys that wait until a time."""
    leased: int
    """The number of keys that are on their way to a worker or that a worker runs."""
    waiting: int
    """The number of jobs that wait in queues."""
    admitted: int
    """The number of jobs that hold a reservation."""
    workers: dict[str, int] = field(default_factory=dict)
    """The live workers and the number of threads of each."""


_COMMANDS = (
    ("TIME",),
    ("GET", redis_keys.EPOCH),
    ("GET", f"{redis_keys.PREFIX}pick"),
    ("HGET", redis_keys.TALLY, redis_keys.RUNS),
    ("GET", redis_keys.READY_COUNT),
    ("ZCARD", redis_keys.DELAYED),
    ("ZCARD", redis_keys.LEASES),
    ("HLEN", redis_keys.ENTRIES),
    ("HLEN", redis_keys.RESERVATIONS),
    ("ZRANGE", redis_keys.WORKERS, "0", "-1", "WITHSCORES"),
    ("HGETALL", redis_keys.THREADS),
)


def read(connection: Connection) -> QueueStats:
    """Read the numbers. Raises QueueError if Redis does not answer or holds a value that cannot be read."""
    time, *numbers, workers, threads = read_atomically(connection, _COMMANDS)
    with translate_parse_errors(connection):
        now = int(time[0]) + int(time[1]) / 1e6
        epoch, picks, runs, ready, delayed, leased, waiting, admitted = map(_number, numbers)
        alive = {name.decode() for name, ends in workers or () if float(ends) > now}
        return QueueStats(
            at=now,
            epoch=epoch,
            picks=picks,
            runs=runs,
            ready=ready,
            delayed=delayed,
            leased=leased,
            waiting=waiting,
            admitted=admitted,
            workers={name: int(threads.get(name.encode(), 0)) for name in sorted(alive)},
        )


def _number(answer: Any) -> int:
    if isinstance(answer, Exception):
        raise ValueError(str(answer))
    return int(answer or 0)
