"""The work queue in Redis: the side of the coordinator and the side of the workers.

One rule: every step is one script (queues/lua/work/*.lua), so that a process may die between any two steps.
"""

import itertools
import secrets
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Generic, TypeVar

from crds import timestamps
from crds.keys import JobKey
from crds.resources.amounts import Amounts
from queues import redis_keys, task_times
from queues.chunks import chunks
from queues.inspection import redis_reader
from queues.inspection_values import WorkInspection
from queues.redis import codec
from queues.redis.connection import Connection, translate_parse_errors
from queues.redis.scripts import Script
from queues.registrations import Registration, StoreIdentity
from queues.tasks import Offer, Task
from queues.values import Refusal
from queues.work import BRIEF_SECONDS, SETTLED_SECONDS, Lease, WorkSettings

Item = TypeVar("Item")


_PRELUDES = ("lib/clock", "lib/epoch", "lib/records", "lib/mark")
_OFFER = Script("work/offer", preludes=_PRELUDES)
_BRIEF = Script("work/brief")
_DROP = Script("work/drop", preludes=("lib/records",))
_DISPATCH = Script("work/dispatch", preludes=_PRELUDES)
_BEGIN = Script("work/begin", preludes=_PRELUDES)
_RENEW = Script("work/renew", preludes=_PRELUDES)
_HOLDS = Script("work/holds", preludes=("lib/records",))
_FINISH = Script("work/finish", preludes=_PRELUDES)
_RAISE = Script("store/raise", preludes=("lib/records", "lib/store", "lib/usage", "lib/limits"))
_SHORTEN = Script("work/shorten", preludes=("lib/clock",))
_REGISTER = Script("work/register", preludes=_PRELUDES)
_OFFERS_PER_CALL = 500
"""The most offers for one call of the script. Other clients wait meanwhile, a few milliseconds."""
_TASK_FIELDS = 9


class _Group(Generic[Item]):
    """The items of one call, and its result."""

    def __init__(self) -> None:
        self.items: list[Item] = []
        self.is_done = False
        self.error: Exception | None = None


class GroupCommit(Generic[Item]):
    """Passes the items of many threads to `send`, with one call at a time."""

    def __init__(self, send: Callable[[Sequence[Item]], None]) -> None:
        self._send = send
        self._gathering = threading.Lock()
        self._sending = threading.Lock()
        self._open: _Group[Item] = _Group()

    def __call__(self, item: Item) -> None:
        """Send an item, perhaps with items of other threads. Raises what `send` raised."""
        with self._gathering:
            group = self._open
            group.items.append(item)
        with self._sending:
            if not group.is_done:
                self._close(group)
        if group.error:
            raise group.error

    def _close(self, group: _Group[Item]) -> None:
        with self._gathering:
            self._open = _Group()
        try:
            self._send(group.items)
        except Exception as error:
            group.error = error
        finally:
            group.is_done = True


class RedisWork:
    """A WorkSource and WorkSink over one connection; safe to share between threads."""

    def __init__(
        self, connection: Connection, settings: WorkSettings | None = None, clock: Callable[[], float] | None = None
    ) -> None:
        """`clock` returns seconds since 1970 and is for tests; the default is the server's time."""
        self._connection = connection
        self._settings = settings or WorkSettings()
        self._clock = clock
        self._finish = GroupCommit(self._finish_all)

    def offer(self, offers: Iterable[Offer]) -> None:
        """See WorkSource."""
        for chunk in chunks(list(offers), _OFFERS_PER_CALL):
            arguments: list[str | float] = [self._now(), redis_keys.OWN_LAYOUT]
            arguments += itertools.chain.from_iterable(map(_offer_fields, chunk))
            _OFFER(self._connection, arguments=arguments)

    def drop(self, keys: Iterable[JobKey]) -> None:
        """See WorkSource."""
        _DROP(self._connection, arguments=[str(key) for key in keys])

    def brief(self, briefs: Mapping[JobKey, bytes]) -> None:
        """See WorkSource."""
        for chunk in chunks(list(briefs.items()), _OFFERS_PER_CALL):
            arguments: list[str | bytes | int] = [BRIEF_SECONDS]
            for key, brief in chunk:
                arguments += (str(key), brief)
            _BRIEF(self._connection, arguments=arguments)

    def dispatch(self) -> int:
        """See WorkSource."""
        settings = self._settings
        created = timestamps.format_micro_time(datetime.now(UTC))
        arguments = (
            self._now(),
            redis_keys.OWN_LAYOUT,
            settings.dispatched_lease,
            settings.batch,
            secrets.token_hex(8),
            created,
            settings.batch_timeout,
            settings.failed_batch_kept,
            settings.tenant_share,
            settings.tenant_seconds,
        )
        return int(_DISPATCH(self._connection, arguments=arguments))

    def shorten_leases(self) -> int:
        """See WorkSource."""
        settings = self._settings
        longest = max(settings.dispatched_lease, settings.running_lease)
        return int(_SHORTEN(self._connection, arguments=[self._now(), longest, settings.registration]))

    def inspect(self) -> WorkInspection:
        """See WorkSource."""
        return redis_reader.read_work(self._connection)

    def forget(self, epoch: int) -> None:
        """See WorkSource."""
        redis_reader.reset_work(self._connection, epoch)

    def register(self, registration: Registration) -> StoreIdentity:
        """See WorkSink."""
        text = registration.text() if registration.is_listed else ""
        arguments: list[str | float] = [self._now(), self._settings.registration, registration.worker, text]
        layout, epoch, owner, now = _REGISTER(self._connection, arguments=arguments)
        with translate_parse_errors(self._connection):
            return StoreIdentity(int(layout or 0), int(epoch or 0), owner.decode(), float(now))

    def begin(self, leases: Sequence[Lease]) -> list[Task]:
        """See WorkSink."""
        run = secrets.token_hex(8)
        arguments: list[str | float] = [
            self._now(),
            redis_keys.OWN_LAYOUT,
            self._settings.running_lease,
            run,
            *_flatten(leases),
        ]
        answer: list[bytes] = _BEGIN(self._connection, arguments=arguments)
        now = (self._clock or time.time)()
        with translate_parse_errors(self._connection):
            return [_task(answer[start : start + _TASK_FIELDS], now) for start in range(0, len(answer), _TASK_FIELDS)]

    def renew(self, leases: Sequence[Lease]) -> None:
        """See WorkSink."""
        if leases:
            _RENEW(self._connection, arguments=[self._now(), self._settings.running_lease, *_flatten(leases)])

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
        pods_version: int = 0,
        settled_version: int = 0,
    ) -> None:
        """See WorkSink."""
        after = "" if requeue_after is None else repr(float(requeue_after))
        self._finish((str(key), token, after, int(failed), pods_version, settled_version))

    def _finish_all(self, calls: Sequence[tuple[str | int, ...]]) -> None:
        limits = (self._settings.backoff_first, self._settings.backoff_cap, SETTLED_SECONDS)
        _FINISH(self._connection, arguments=[self._now(), *limits, *itertools.chain.from_iterable(calls)])

    def _now(self) -> str:
        return repr(self._clock()) if self._clock else ""


def _offer_fields(offer: Offer) -> tuple[str | int | float, ...]:
    return str(offer.key), offer.tenant, offer.seen, float(offer.delay), offer.version, offer.kind


def _flatten(leases: Sequence[Lease]) -> list[str]:
    return [text for key, token in leases for text in (str(key), token)]


def _task(fields: Sequence[bytes], now: float) -> Task:
    *texts, brief = fields
    key, token, tenant, pods_version, failures, reservation, ready, leased = (text.decode() for text in texts)
    job = JobKey.parse(key)
    return Task(
        key=job,
        token=token,
        tenant=tenant,
        seen=int(pods_version),
        failures=int(failures),
        reservation=codec.decode_reservation(job, reservation) if reservation else None,
        brief=brief,
        times=task_times.from_ages(now, float(ready), float(leased)),
    )
