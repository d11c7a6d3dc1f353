"""The work queue in memory: the twin of redis_work that tests and the inline mode run on.

One rule: it skips nothing that Redis does (tokens, leases, epochs, turns), so what holds here holds there.
"""

import json
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from crds.keys import JobKey
from crds.resources.amounts import Amounts
from queues import errors
from queues.inspection.rq_record import FUNCTION
from queues.inspection_values import RqJob, WorkPicture, WorkRecord
from queues.values import Offer, Refusal, Reservation, Task
from queues.work import SETTLED_SECONDS, Lease, WorkSettings, backoff, batch_size

DOUBT = 2**53
"""More than any resourceVersion: nobody knows what pods there are."""
Batch = list[list[str]]
"""What travels to a worker: JSON [[key, token], ...]."""


@dataclass(slots=True, kw_only=True)
class _Record:
    """One key that is not at rest."""

    state: Literal["ready", "delayed", "leased"]
    tenant: str
    seen: int = 0
    failures: int = 0
    token: str = ""
    epoch: int = 0
    dirty: bool = False
    changed: tuple[int, int] = (0, 0)
    """Versions of the job and its pods that were told while it was leased: it runs once more unless that settles it."""
    due: float = 0.0
    """When a delayed key is due, when a leased one's lease ends."""


class MemoryWork:
    """WorkSource and WorkSink in one process; safe to share between threads."""

    def __init__(
        self,
        clock: Callable[[], float],
        epoch: Callable[[], int],
        reservation: Callable[[JobKey], Reservation | None],
        settings: WorkSettings | None = None,
        raise_charge: Callable[[JobKey, int, Amounts], Refusal] = lambda *_: "reservation",
    ) -> None:
        """`epoch` and `reservation` read the queue store that stands beside it; epoch 0 means that it is lost.
        `raise_charge` is that store's. They are called without our lock, since the store calls `mark` under its own."""
        self._clock = clock
        self._epoch = epoch
        self._reservation = reservation
        self._raise_charge = raise_charge
        self._settings = settings or WorkSettings()
        self._lock = threading.RLock()
        self._records: dict[JobKey, _Record] = {}
        self._ready: dict[str, deque[JobKey]] = {}
        self._turns: deque[str] = deque()
        self._workers: dict[str, tuple[int, float]] = {}
        self._leased = 0
        self._tokens = 0
        self._batches: deque[str] = deque()
        self._made: dict[JobKey, int] = {}
        """Newest pods known when a key was given back; of keys without a reservation, it is nobody's concern."""
        self._settled: dict[JobKey, tuple[int, int, float]] = {}
        """Versions of job and pods that the last run has settled, and until when that is remembered."""

    def mark(self, key: JobKey, tenant: str, seen: int = 0) -> None:
        """What the store's commit calls for every pick, and an offer without delay."""
        with self._lock:
            record = self._records.get(key)
            if record is None:
                record = self._records[key] = _Record(state="delayed", tenant=tenant)
            record.seen = max(record.seen, seen)
            match record.state:
                case "leased":
                    record.dirty, record.tenant = True, tenant
                case "delayed":
                    self._make_ready(key, record, tenant)

    def offer(self, offers: Iterable[Offer]) -> None:
        """See WorkSource."""
        self._live_epoch()
        with self._lock:
            for each in offers:
                if each.delay > 0:
                    self._mark_later(each)
                elif each.version:
                    self._mark_changed(each)
                else:
                    self.mark(each.key, each.tenant, each.seen)

    def drop(self, keys: Iterable[JobKey]) -> None:
        """See WorkSource."""
        with self._lock:
            for key in keys:
                record = self._records.get(key)
                if record and record.state == "delayed" and not record.failures:
                    del self._records[key]
                elif record and record.state == "leased":
                    record.dirty = True

    def dispatch(self) -> int:
        """See WorkSource."""
        epoch, now = self._live_epoch(), self._clock()
        with self._lock:
            self._wake(now)
            self._workers = {name: each for name, each in self._workers.items() if each[1] > now}
            threads = sum(count for count, _ in self._workers.values())
            ready = sum(map(len, self._ready.values()))
            size = batch_size(ready, len(self._workers), threads, self._settings.batch)
            free = threads - self._leased if len(self._batches) < len(self._workers) else 0
            taken = [self._lease(epoch, now) for _ in range(min(ready, free))]
            for start in range(0, len(taken), size):
                self._batches.append(json.dumps(taken[start : start + size]))
            return len(taken)

    def pop(self) -> list[Lease]:
        """A worker's door: the next batch pushed, empty if there is none."""
        with self._lock:
            batch: Batch = json.loads(self._batches.popleft()) if self._batches else []
        return [(JobKey.parse(key), token) for key, token in batch]

    def inspect(self) -> WorkPicture:
        """See WorkSource."""
        with self._lock:
            leased = {key: each.due for key, each in self._records.items() if each.state == "leased"}
            ready = sum(map(len, self._ready.values()))
            return WorkPicture(
                now=self._clock(),
                records={key: _shown(each) for key, each in self._records.items()},
                ready={tenant: frozenset(keys) for tenant, keys in self._ready.items()},
                turns=frozenset(self._turns),
                ready_count=ready,
                ready_length=ready,
                leases=leased,
                workers={name: ends for name, (_, ends) in self._workers.items()},
                threads=frozenset(self._workers),
                rq=tuple(
                    RqJob(id=f"batch-{number}", where="queue", function=FUNCTION)
                    for number in range(len(self._batches))
                ),
            )

    def forget(self, epoch: int) -> None:
        """See WorkSource. The store beside it is its own to lose."""
        if self._epoch() > epoch:
            raise errors.StaleEpoch(f"epoch {epoch} is over: the queues are at {self._epoch()}")
        with self._lock:
            for content in (self._records, self._ready, self._turns, self._batches, self._made, self._settled):
                content.clear()
            self._leased = 0

    def clear(self) -> None:
        """Forget everything, as a Redis that lost its content."""
        with self._lock:
            for content in (
                self._records,
                self._ready,
                self._turns,
                self._workers,
                self._batches,
                self._made,
                self._settled,
            ):
                content.clear()
            self._leased = 0

    def register(self, worker: str, threads: int) -> None:
        """See WorkSink."""
        with self._lock:
            self._workers.pop(worker, None)
            if threads > 0:
                self._workers[worker] = (threads, self._clock() + self._settings.registration)

    def begin(self, leases: Sequence[Lease]) -> list[Task]:
        """See WorkSink."""
        epoch = self._live_epoch()
        reservations = {key: self._reservation(key) for key, _ in leases}
        with self._lock:
            ours = [key for key, token in leases if (found := self._held(key, token)) and not found.epoch]
            return [self._begin(key, epoch, reservations[key]) for key in ours]

    def renew(self, leases: Sequence[Lease]) -> None:
        """See WorkSink."""
        with self._lock:
            for key, token in leases:
                if record := self._held(key, token):
                    record.due = self._clock() + self._settings.running_lease

    def holds(self, key: JobKey, token: str) -> bool:
        """See WorkSink."""
        epoch = self._epoch()
        with self._lock:
            record = self._held(key, token)
            return record is not None and epoch > 0 and record.epoch == epoch

    def raise_charge(self, key: JobKey, token: str, attempt: int, charge: Amounts) -> Refusal:
        """See WorkSink."""
        self._live_epoch()
        return self._raise_charge(key, attempt, charge) if self.holds(key, token) else "reservation"

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
        with self._lock:
            record = self._held(key, token)
            if record is None:
                return
            self._note(key, DOUBT if failed else made)
            self._settle(key, 0 if failed else settled, made)
            dirty = record.dirty or (any(record.changed) and not self._is_settled(key, *record.changed))
            self._release(record)
            record.failures = record.failures + 1 if failed else 0
            delay = backoff(record.failures, self._settings) if failed else requeue_after
            if dirty or (delay is not None and delay <= 0):
                self._make_ready(key, record, record.tenant)
            elif delay is not None:
                record.state, record.due = "delayed", self._clock() + delay
            else:
                del self._records[key]

    def may_have_pods(self, key: JobKey, seen: int) -> bool:
        """What the store's `remove` asks of a reservation: whether there may be pods that `seen` does not cover."""
        with self._lock:
            record = self._records.get(key)
            if self._made.get(key, 0) > seen or (record is not None and record.epoch > 0):
                return True
            self._made.pop(key, None)
            return False

    def _note(self, key: JobKey, made: int) -> None:
        if made:
            self._made[key] = made
        elif self._made.get(key) == DOUBT:
            del self._made[key]

    def _live_epoch(self) -> int:
        epoch = self._epoch()
        if not epoch:
            raise errors.StoreLost("no epoch: the queues must be rebuilt first")
        return epoch

    def _held(self, key: JobKey, token: str) -> _Record | None:
        record = self._records.get(key)
        return record if record and record.state == "leased" and record.token == token else None

    def _make_ready(self, key: JobKey, record: _Record, tenant: str) -> None:
        record.state, record.tenant = "ready", tenant
        waiting = self._ready.setdefault(tenant, deque())
        if not waiting:
            self._turns.append(tenant)
        waiting.append(key)

    def _mark_later(self, offer: Offer) -> None:
        due = self._clock() + offer.delay
        record = self._records.get(offer.key)
        if record is None:
            self._records[offer.key] = _Record(state="delayed", tenant=offer.tenant, seen=offer.seen, due=due)
            return
        record.seen = max(record.seen, offer.seen)
        match record.state:
            case "leased":
                record.dirty, record.tenant = True, offer.tenant
            case "delayed":
                record.due = min(record.due, due)

    def _mark_changed(self, offer: Offer) -> None:
        record = self._records.get(offer.key)
        if record is not None and record.state == "leased" and not record.dirty:
            job, pods = record.changed
            record.seen, record.tenant = max(record.seen, offer.seen), offer.tenant
            record.changed = max(job, offer.version), max(pods, offer.seen)
            return
        moving = record is not None and record.state != "delayed"
        if moving or not self._is_settled(offer.key, offer.version, offer.seen):
            self.mark(offer.key, offer.tenant, offer.seen)

    def _settle(self, key: JobKey, version: int, made: int) -> None:
        now = self._clock()
        self._settled = {each: found for each, found in self._settled.items() if found[2] > now and each != key}
        if version:
            self._settled[key] = version, made, now + SETTLED_SECONDS

    def _is_settled(self, key: JobKey, version: int, seen: int) -> bool:
        job, pods, until = self._settled.get(key, (0, 0, 0.0))
        return until > self._clock() and job >= version and pods >= seen

    def _wake(self, now: float) -> None:
        due = [(key, record) for key, record in self._records.items() if record.state != "ready" and record.due <= now]
        for key, record in sorted(due, key=lambda each: (each[1].state, each[1].due, str(each[0]))):
            if record.state == "leased":
                if record.epoch:  # whoever ran it is gone, and nobody knows how far it came
                    record.failures += 1
                    self._note(key, DOUBT)
                self._release(record)
            self._make_ready(key, record, record.tenant)

    def _release(self, record: _Record) -> None:
        self._leased -= 1
        record.token, record.epoch, record.dirty, record.changed = "", 0, False, (0, 0)

    def _lease(self, epoch: int, now: float) -> list[str]:
        tenant = self._turns.popleft()
        waiting = self._ready[tenant]
        key = waiting.popleft()
        if waiting:
            self._turns.append(tenant)
        else:
            del self._ready[tenant]
        record = self._records[key]
        self._leased += 1
        self._tokens += 1
        record.state, record.token = "leased", f"{epoch}.{self._tokens}"
        record.due = now + self._settings.dispatched_lease
        return [str(key), record.token]

    def _begin(self, key: JobKey, epoch: int, reservation: Reservation | None) -> Task:
        record = self._records[key]
        record.epoch, record.due = epoch, self._clock() + self._settings.running_lease
        made = self._made.get(key, 0)
        return Task(
            key=key,
            token=record.token,
            tenant=record.tenant,
            seen=record.seen if made == DOUBT else max(record.seen, made),
            failures=record.failures,
            reservation=reservation,
        )


def _shown(record: _Record) -> WorkRecord:
    return WorkRecord(
        state=record.state,
        tenant=record.tenant,
        token=record.token,
        failures=record.failures,
        due=record.due if record.state == "delayed" else None,
        lease_ends=record.due if record.state == "leased" else None,
    )
