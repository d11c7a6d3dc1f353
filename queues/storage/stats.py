"""How queues and dispatch do, in a few numbers: what `torchq status` shows.

One rule: a handful of plain reading commands at one moment, however many jobs wait.
"""

from dataclasses import dataclass, field
from typing import Any

from queues import redis_keys
from queues.redis.connection import Connection, at_once, understood


@dataclass(frozen=True, slots=True, kw_only=True)
class Vitals:
    """Numbers of one moment. `picks` and `runs` only rise: two looks make a rate."""

    at: float
    """By the server's clock, seconds since 1970."""
    epoch: int
    """0: the queues are lost or were never there."""
    picks: int
    """Picks ever committed."""
    runs: int
    """Reconciles ever given back by a worker."""
    ready: int
    """Keys that wait for a worker."""
    delayed: int
    leased: int
    """Keys on their way to a worker, or at one."""
    waiting: int
    """Jobs that wait in queues."""
    admitted: int
    """Jobs that hold room."""
    workers: dict[str, int] = field(default_factory=dict)
    """Those alive, and how many threads each has."""


_QUESTIONS = (
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


def read(connection: Connection) -> Vitals:
    """One look. QueueError if Redis does not answer or holds what cannot be read."""
    time, *numbers, workers, threads = at_once(connection, _QUESTIONS)
    with understood(connection):
        now = int(time[0]) + int(time[1]) / 1e6
        epoch, picks, runs, ready, delayed, leased, waiting, admitted = map(_number, numbers)
        alive = {name.decode() for name, ends in workers or () if float(ends) > now}
        return Vitals(
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
