"""The numbers about queues and dispatch that `torchq status` shows.

One rule: a few plain reading commands at one moment, however many jobs wait.
"""

from dataclasses import dataclass
from typing import Any

from queues import redis_keys
from queues.inspection import redis_reader
from queues.installation import Installation
from queues.redis import fitness
from queues.redis.connection import Connection, read_atomically, translate_parse_errors
from queues.registrations import Registration, StoreIdentity, find_refusal


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
    owner: str = ""
    """The installation that the queues belong to, as Redis has it; empty if it is not known."""
    problem: str = ""
    """Why no leader can use the queues; empty if it can, as far as it is known without a write."""
    members: tuple[Registration, ...] = ()
    """The live workers, also those that take no work, by name."""

    @property
    def store(self) -> StoreIdentity:
        """The store as its leader uses it."""
        return StoreIdentity(redis_keys.OWN_LAYOUT, self.epoch, self.owner)

    @property
    def workers(self) -> tuple[Registration, ...]:
        """The live workers that take work."""
        return tuple(each for each in self.members if not find_refusal(each, self.store))


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
    ("GET", redis_keys.OWNER),
    *redis_reader.MEMBERS_COMMANDS,
)


def read(connection: Connection, own: Installation | None = None) -> QueueStats:
    """Read the numbers of an installation; None if the caller does not know its own installation. Raises QueueError if
    Redis does not answer or holds a value that cannot be read.
    """
    problem = fitness.read_problem(connection, own)
    time, *numbers, owner, members, older = read_atomically(connection, _COMMANDS)
    with translate_parse_errors(connection):
        now = int(time[0]) + int(time[1]) / 1e6
        epoch, picks, runs, ready, delayed, leased, waiting, admitted = map(_number, numbers)
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
            owner=(owner or b"").decode(),
            problem=problem,
            members=tuple(
                member.registration for member in redis_reader.parse_members(members, older) if member.until > now
            ),
        )


def _number(answer: Any) -> int:
    if isinstance(answer, Exception):
        raise ValueError(str(answer))
    return int(answer or 0)
