"""The work queue in Redis, both ends of it.

One rule: every step is one script (queues/lua/work_*.lua), so that a process may die between any two of them.
"""

import itertools
import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime

from crds.keys import JobKey
from crds.resources.amounts import Amounts
from queues.dispatch.group_commit import GroupCommit
from queues.inspection import redis_reader, reset
from queues.inspection_values import WorkPicture
from queues.redis import codec
from queues.redis.connection import Connection, understood
from queues.redis.scripts import Script
from queues.values import Offer, Refusal, Task
from queues.work import SETTLED_SECONDS, Lease, WorkSettings

_PRELUDES = ("lib/clock", "lib/records", "lib/mark")
_OFFER = Script("work/offer", preludes=_PRELUDES)
_DROP = Script("work/drop", preludes=("lib/records",))
_DISPATCH = Script("work/dispatch", preludes=_PRELUDES)
_BEGIN = Script("work/begin", preludes=_PRELUDES)
_RENEW = Script("work/renew", preludes=_PRELUDES)
_HOLDS = Script("work/holds", preludes=("lib/records",))
_FINISH = Script("work/finish", preludes=_PRELUDES)
_RAISE = Script("store/raise", preludes=("lib/records", "lib/store", "lib/usage", "lib/limits"))
_REGISTER = Script("work/register", preludes=_PRELUDES)

_OFFERS_PER_CALL = 500
"""Bounds the time one script keeps other clients waiting to a few milliseconds."""
_TASK_FIELDS = 6


class RedisWork:
    """WorkSource and WorkSink over one connection; safe to share between threads."""

    def __init__(
        self, connection: Connection, settings: WorkSettings | None = None, clock: Callable[[], float] | None = None
    ) -> None:
        """`clock` gives seconds since 1970 and is for tests; without it the server's time is used."""
        self._connection = connection
        self._settings = settings or WorkSettings()
        self._clock = clock
        self._finish = GroupCommit(self._finish_all)

    def offer(self, offers: Iterable[Offer]) -> None:
        """See WorkSource."""
        for some in _chunks(list(offers), _OFFERS_PER_CALL):
            _OFFER(self._connection, arguments=[self._now(), *itertools.chain.from_iterable(map(_fields, some))])

    def drop(self, keys: Iterable[JobKey]) -> None:
        """See WorkSource."""
        _DROP(self._connection, arguments=[str(key) for key in keys])

    def dispatch(self) -> int:
        """See WorkSource."""
        settings = self._settings
        created = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        arguments = (
            self._now(),
            settings.dispatched_lease,
            settings.batch,
            secrets.token_hex(8),
            created,
            settings.batch_timeout,
            settings.failed_batch_kept,
        )
        return int(_DISPATCH(self._connection, arguments=arguments))

    def inspect(self) -> WorkPicture:
        """See WorkSource."""
        return redis_reader.work(self._connection)

    def forget(self, epoch: int) -> None:
        """See WorkSource."""
        reset.work(self._connection, epoch)

    def register(self, worker: str, threads: int) -> None:
        """See WorkSink."""
        _REGISTER(self._connection, arguments=[self._now(), self._settings.registration, worker, threads])

    def begin(self, leases: Sequence[Lease]) -> list[Task]:
        """See WorkSink."""
        run = secrets.token_hex(8)
        arguments: list[str | float] = [self._now(), self._settings.running_lease, run, *_flat(leases)]
        found: list[bytes] = _BEGIN(self._connection, arguments=arguments)
        with understood(self._connection):
            return [_task(found[at : at + _TASK_FIELDS]) for at in range(0, len(found), _TASK_FIELDS)]

    def renew(self, leases: Sequence[Lease]) -> None:
        """See WorkSink."""
        if leases:
            _RENEW(self._connection, arguments=[self._now(), self._settings.running_lease, *_flat(leases)])

    def holds(self, key: JobKey, token: str) -> bool:
        """See WorkSink."""
        return bool(_HOLDS(self._connection, arguments=[str(key), token]))

    def raise_charge(self, key: JobKey, token: str, attempt: int, charge: Amounts) -> Refusal:
        """See WorkSink."""
        answer = _RAISE(self._connection, arguments=[str(key), token, attempt, codec.encode_amounts(charge)])
        return answer.decode()  # type: ignore[no-any-return]

    def finish(
        self,
        key: JobKey,
        token: str,
        *,
        requeue_after: float | None = None,
        failed: bool = False,
        made: int = 0,
        settled: int = 0,
    ) -> None:
        """See WorkSink."""
        after = "" if requeue_after is None else repr(float(requeue_after))
        self._finish((str(key), token, after, int(failed), made, settled))

    def _finish_all(self, finished: Sequence[tuple[str | int, ...]]) -> None:
        limits = (self._settings.backoff_first, self._settings.backoff_cap, SETTLED_SECONDS)
        _FINISH(self._connection, arguments=[self._now(), *limits, *itertools.chain.from_iterable(finished)])

    def _now(self) -> str:
        return repr(self._clock()) if self._clock else ""


def _fields(offer: Offer) -> tuple[str | int | float, ...]:
    return str(offer.key), offer.tenant, offer.seen, float(offer.delay), offer.version


def _flat(leases: Sequence[Lease]) -> list[str]:
    return [text for key, token in leases for text in (str(key), token)]


def _task(fields: Sequence[bytes]) -> Task:
    key, token, tenant, seen, failures, reservation = (field.decode() for field in fields)
    job = JobKey.parse(key)
    return Task(
        key=job,
        token=token,
        tenant=tenant,
        seen=int(seen),
        failures=int(failures),
        reservation=codec.decode_reservation(job, reservation) if reservation else None,
    )


def _chunks(offers: Sequence[Offer], size: int) -> Iterator[Sequence[Offer]]:
    for start in range(0, len(offers), size):
        yield offers[start : start + size]
