"""The work queue in memory, for tests: the twin of `queues.dispatch.redis_work`.

One rule: this queue does everything that Redis does (tokens, leases, epochs, turns), so that a test of this queue is a
test of both.
"""

import json
import math
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Literal

from crds.keys import JobKey
from crds.resources.amounts import Amounts
from queues import errors, redis_keys, task_times
from queues.inspection.rq_record import FUNCTION
from queues.inspection_values import RqJob, WorkInspection, WorkRecord
from queues.registrations import Member, Registration, StoreIdentity
from queues.tasks import Offer, Task
from queues.values import Refusal, Reservation
from queues.work import BRIEF_SECONDS, SETTLED_SECONDS, Lease, WorkSettings, backoff
from queues.work_kinds import EIGHT, KINDS, TURNS, WorkKind, lane, more_urgent

DOUBT = 2**53
"""A number above any resourceVersion. As a version of pods, it means that the pods of the job are unknown."""
Batch = list[list[str]]
"""The message to a worker: JSON [[key, token], ...]."""


@dataclass(slots=True, kw_only=True)
class _Record:
    """A key that waits, or that is leased to a worker."""

    state: Literal["ready", "delayed", "leased"]
    tenant: str
    kind: WorkKind = "begins"
    """What the run is for. For a leased key that was marked during its run, what the next run is for."""
    seen: int = 0
    failures: int = 0
    token: str = ""
    holder: str = ""
    """The tenant whose turn the lease has used."""
    epoch: int = 0
    dirty: bool = False
    changed: tuple[int, int] = (0, 0)
    """The newest versions of the job and its pods that were offered during the lease. The key runs once more unless the
    run settles these versions."""
    due: float = 0.0
    """The time at which a delayed key is due, or at which the lease of a leased key ends."""
    since: float = 0.0
    """When the key became ready."""
    leased: float = 0.0


class MemoryWork:
    """A WorkSource and WorkSink in one process; safe to share between threads."""

    def __init__(
        self,
        clock: Callable[[], float],
        epoch: Callable[[], int],
        reservation: Callable[[JobKey], Reservation | None],
        settings: WorkSettings | None = None,
        raise_charge: Callable[[JobKey, int, Amounts], Refusal] = lambda *_: "reservation",
    ) -> None:
        """`epoch` and `reservation` read the queue store of the same test; epoch 0 means that the store is lost.
        `raise_charge` is the store's method. All three are called outside the lock of this object, since the store
        calls `mark` under its own lock.
        """
        self._clock = clock
        self._epoch = epoch
        self._reservation = reservation
        self._raise_charge = raise_charge
        self._settings = settings or WorkSettings()
        self._lock = threading.RLock()
        self._records: dict[JobKey, _Record] = {}
        self._ready: dict[str, deque[JobKey]] = {}
        """The ready keys by lane."""
        self._turns: dict[WorkKind, deque[str]] = {kind: deque() for kind in KINDS}
        """The lanes of each kind that have ready keys. The first lane has the next turn."""
        self._dispatched = 0
        self._workers: dict[str, Member] = {}
        self._leased = 0
        self._recent: dict[str, float] = {}
        """Tenant -> when a key of it was last leased."""
        self._tokens = 0
        self._batches: deque[str] = deque()
        self._pods_versions: dict[JobKey, int] = {}
        """Key -> the newest version of its pods that was known at the end of its lease."""
        self._settled: dict[JobKey, tuple[int, int, float]] = {}
        """Key -> the versions of the job and its pods that the last run has settled, and the time until which this
        counts."""
        self._briefs: dict[JobKey, tuple[bytes, float]] = {}
        """Key -> its brief, and the time until which the brief is kept."""

    def mark(self, key: JobKey, tenant: str, pods_version: int = 0, kind: WorkKind = "begins") -> None:
        """Mark a key as work. The store's commit calls this for every pick, and `offer` for an offer without delay."""
        with self._lock:
            record = self._records.get(key)
            if record is None:
                record = self._records[key] = _Record(state="delayed", tenant=tenant)
            record.seen = max(record.seen, pods_version)
            match record.state:
                case "leased":
                    self._mark_leased(record, tenant, kind)
                    record.dirty = True
                case "delayed":
                    record.kind = kind
                    self._make_ready(key, record, tenant)
                case "ready":
                    self._hasten(key, record, kind)

    def offer(self, offers: Iterable[Offer]) -> None:
        """See WorkSource."""
        self._live_epoch()
        with self._lock:
            for offer in offers:
                if offer.delay > 0:
                    self._mark_later(offer)
                elif offer.version:
                    self._mark_changed(offer)
                else:
                    self.mark(offer.key, offer.tenant, offer.seen, offer.kind)

    def brief(self, briefs: Mapping[JobKey, bytes]) -> None:
        """See WorkSource."""
        until = self._clock() + BRIEF_SECONDS
        with self._lock:
            self._briefs.update({key: (brief, until) for key, brief in briefs.items()})

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
            self._workers = {name: member for name, member in self._workers.items() if member.until > now}
            registered = (member.registration for member in self._workers.values())
            counted = [each.threads for each in registered if each.layout == redis_keys.OWN_LAYOUT and each.threads]
            ready = sum(map(len, self._ready.values()))
            size = batch_size(ready, len(counted), sum(counted), self._settings.batch)
            free = sum(counted) - self._leased if len(self._batches) < len(counted) else 0
            recent = self._recent_tenants(now)
            most = max(2, math.ceil(sum(counted) * self._settings.tenant_share))
            taken = (self._lease(epoch, now, recent, most) for _ in range(min(ready, free)))
            leases = list(takewhile(bool, taken))
            for start in range(0, len(leases), size):
                self._batches.append(json.dumps(leases[start : start + size]))
            return len(leases)

    def shorten_leases(self) -> int:
        """See WorkSource."""
        settings, now = self._settings, self._clock()
        latest = now + max(settings.dispatched_lease, settings.running_lease)
        with self._lock:
            leased = [each for each in self._records.values() if each.state == "leased" and each.due > latest]
            late = [name for name, each in self._workers.items() if each.until > now + settings.registration]
            for record in leased:
                record.due = latest
            for name in late:
                self._workers[name] = replace(self._workers[name], until=now + settings.registration)
        return len(leased) + len(late)

    def pop(self) -> list[Lease]:
        """Return the next pushed batch, as a worker would take it from RQ; empty if no batch was pushed."""
        with self._lock:
            batch: Batch = json.loads(self._batches.popleft()) if self._batches else []
        return [(JobKey.parse(key), token) for key, token in batch]

    def inspect(self) -> WorkInspection:
        """See WorkSource."""
        with self._lock:
            leased = {key: record.due for key, record in self._records.items() if record.state == "leased"}
            ready = sum(map(len, self._ready.values()))
            return WorkInspection(
                now=self._clock(),
                records={key: _work_record(record) for key, record in self._records.items()},
                ready={name: frozenset(keys) for name, keys in self._ready.items()},
                turns=frozenset(each for lanes in self._turns.values() for each in lanes),
                ready_count=ready,
                ready_length=ready,
                leases=leased,
                members=tuple(self._workers.values()),
                rq=tuple(
                    RqJob(id=f"batch-{number}", where="queue", function=FUNCTION)
                    for number in range(len(self._batches))
                ),
            )

    def forget(self, epoch: int) -> None:
        """See WorkSource. The queue store is not reset together with this queue."""
        if self._epoch() > epoch:
            raise errors.StaleEpoch(f"epoch {epoch} is over: the queues are at {self._epoch()}")
        with self._lock:
            self._clear()

    def clear(self) -> None:
        """Delete everything, as a Redis that lost its content."""
        with self._lock:
            self._clear()
            self._workers.clear()
            self._dispatched = 0

    def _clear(self) -> None:
        for content in (
            *(self._records, self._ready, self._batches),
            *(self._pods_versions, self._settled, self._briefs),
        ):
            content.clear()
        for lanes in self._turns.values():
            lanes.clear()
        self._leased = 0
        self._recent.clear()

    def register(self, registration: Registration) -> StoreIdentity:
        """See WorkSink."""
        epoch, until = self._epoch(), self._clock() + self._settings.registration
        with self._lock:
            self._workers.pop(registration.worker, None)
            if registration.is_listed:
                self._workers[registration.worker] = Member(registration=registration, until=until)
        return StoreIdentity(layout=redis_keys.OWN_LAYOUT if epoch else 0, epoch=epoch, owner="", time=self._clock())

    def begin(self, leases: Sequence[Lease]) -> list[Task]:
        """See WorkSink."""
        epoch = self._live_epoch()
        reservations = {key: self._reservation(key) for key, _ in leases}
        with self._lock:
            keys = [key for key, token in leases if (record := self._record_of_lease(key, token)) and not record.epoch]
            return [self._begin(key, epoch, reservations[key]) for key in keys]

    def renew(self, leases: Sequence[Lease]) -> None:
        """See WorkSink."""
        with self._lock:
            for key, token in leases:
                if record := self._record_of_lease(key, token):
                    record.due = self._clock() + self._settings.running_lease

    def holds(self, key: JobKey, token: str) -> bool:
        """See WorkSink."""
        epoch = self._epoch()
        with self._lock:
            record = self._record_of_lease(key, token)
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
        pods_version: int = 0,
        settled_version: int = 0,
    ) -> None:
        """See WorkSink."""
        with self._lock:
            record = self._record_of_lease(key, token)
            if record is None:
                return
            self._note(key, DOUBT if failed else pods_version)
            self._settle(key, 0 if failed else settled_version, pods_version)
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

    def may_have_pods(self, key: JobKey, pods_version: int, frees: bool) -> bool:
        """Return whether the job may have pods that are newer than `pods_version`, for the store's `remove` and
        `lower`. If the job has no such pods and `frees` is True, the versions of its pods are forgotten together with
        its reservation.
        """
        with self._lock:
            record = self._records.get(key)
            if self._pods_versions.get(key, 0) > pods_version or (record is not None and record.epoch > 0):
                return True
            if frees:
                self._pods_versions.pop(key, None)
            return False

    def _note(self, key: JobKey, pods_version: int) -> None:
        if pods_version:
            self._pods_versions[key] = pods_version
        elif self._pods_versions.get(key) == DOUBT:
            del self._pods_versions[key]

    def _live_epoch(self) -> int:
        epoch = self._epoch()
        if not epoch:
            raise errors.StoreLost("no epoch: the queues must be rebuilt first")
        return epoch

    def _record_of_lease(self, key: JobKey, token: str) -> _Record | None:
        record = self._records.get(key)
        return record if record and record.state == "leased" and record.token == token else None

    def _make_ready(self, key: JobKey, record: _Record, tenant: str) -> None:
        record.state, record.tenant, record.since = "ready", tenant, self._clock()
        name = lane(tenant, record.kind)
        waiting = self._ready.setdefault(name, deque())
        if not waiting:
            self._turns[record.kind].append(name)
        waiting.append(key)

    def _hasten(self, key: JobKey, record: _Record, kind: WorkKind) -> None:
        """Move a ready key to the end of its tenant's lane of a more urgent kind."""
        if more_urgent(kind, record.kind) == record.kind:
            return
        name = lane(record.tenant, record.kind)
        self._ready[name].remove(key)
        if not self._ready[name]:
            del self._ready[name]
            self._turns[record.kind].remove(name)
        since, record.kind = record.since, kind
        self._make_ready(key, record, record.tenant)
        record.since = since

    def _mark_leased(self, record: _Record, tenant: str, kind: WorkKind) -> None:
        """Note that a leased key runs once more, as the most urgent kind with which it was marked during its run."""
        is_marked = record.dirty or any(record.changed)
        record.kind, record.tenant = more_urgent(kind, record.kind) if is_marked else kind, tenant

    def _mark_later(self, offer: Offer) -> None:
        due = self._clock() + offer.delay
        record = self._records.get(offer.key)
        if record is None:
            self._records[offer.key] = _Record(
                state="delayed", tenant=offer.tenant, kind=offer.kind, seen=offer.seen, due=due
            )
            return
        record.seen = max(record.seen, offer.seen)
        match record.state:
            case "leased":
                self._mark_leased(record, offer.tenant, offer.kind)
                record.dirty = True
            case "delayed":
                record.due, record.kind = min(record.due, due), more_urgent(record.kind, offer.kind)
            case "ready":
                self._hasten(offer.key, record, offer.kind)

    def _mark_changed(self, offer: Offer) -> None:
        record = self._records.get(offer.key)
        if record is not None and record.state == "leased" and not record.dirty:
            self._mark_leased(record, offer.tenant, offer.kind)
            job, pods = record.changed
            record.seen = max(record.seen, offer.seen)
            record.changed = max(job, offer.version), max(pods, offer.seen)
            return
        moving = record is not None and record.state != "delayed"
        if moving or not self._is_settled(offer.key, offer.version, offer.seen):
            self.mark(offer.key, offer.tenant, offer.seen, offer.kind)

    def _settle(self, key: JobKey, version: int, pods_version: int) -> None:
        now = self._clock()
        self._settled = {
            other: settlement for other, settlement in self._settled.items() if settlement[2] > now and other != key
        }
        if version:
            self._settled[key] = version, pods_version, now + SETTLED_SECONDS

    def _is_settled(self, key: JobKey, version: int, pods_version: int) -> bool:
        job, pods, until = self._settled.get(key, (0, 0, 0.0))
        return until > self._clock() and job >= version and pods >= pods_version

    def _wake(self, now: float) -> None:
        due = [(key, record) for key, record in self._records.items() if record.state != "ready" and record.due <= now]
        for key, record in sorted(due, key=lambda item: (item[1].state, item[1].due, str(item[0]))):
            if record.state == "leased":
                if record.epoch:  # its worker died, and what the run has done is unknown
                    record.failures += 1
                    self._note(key, DOUBT)
                self._release(record)
            self._make_ready(key, record, record.tenant)

    def _release(self, record: _Record) -> None:
        self._leased -= 1
        record.token, record.epoch, record.dirty, record.changed = "", 0, False, (0, 0)

    def _recent_tenants(self, now: float) -> frozenset[str]:
        """Return the tenants a key of which was leased lately."""
        earliest = now - self._settings.tenant_seconds
        self._recent = {tenant: at for tenant, at in self._recent.items() if at > earliest}
        return frozenset(self._recent)

    def _next_lane(self, turns: deque[str], recent: frozenset[str], most: int) -> str | None:
        """Return the next lane whose tenant may hold one more thread. The lanes before it go to the end."""
        held = Counter(record.holder for record in self._records.values() if record.state == "leased")
        for _ in range(len(turns)):
            name = turns.popleft()
            tenant = name.rpartition(":")[2]
            if recent <= {tenant} or held[tenant] < most:
                return name
            turns.append(name)
        return None

    def _lease(self, epoch: int, now: float, recent: frozenset[str], most: int) -> list[str]:
        """Lease the next key. Return the key and its token; empty if no key may be taken."""
        first = TURNS[self._dispatched % EIGHT]
        for turns in (self._turns[first], *self._turns.values()):
            if (name := self._next_lane(turns, recent, most)) is not None:
                break
        else:
            return []
        self._dispatched += 1
        waiting = self._ready[name]
        key = waiting.popleft()
        if waiting:
            turns.append(name)
        else:
            del self._ready[name]
        record = self._records[key]
        self._leased += 1
        self._tokens += 1
        record.state, record.token, record.holder = "leased", f"{epoch}.{self._tokens}", record.tenant
        self._recent[record.tenant] = now
        record.leased, record.due = now, now + self._settings.dispatched_lease
        return [str(key), record.token]

    def _begin(self, key: JobKey, epoch: int, reservation: Reservation | None) -> Task:
        record = self._records[key]
        now = self._clock()
        record.epoch, record.due = epoch, now + self._settings.running_lease
        pods_version = self._pods_versions.get(key, 0)
        brief, until = self._briefs.pop(key, (b"", now))
        return Task(
            key=key,
            token=record.token,
            tenant=record.tenant,
            seen=record.seen if pods_version == DOUBT else max(record.seen, pods_version),
            failures=record.failures,
            reservation=reservation,
            brief=brief if until > now else b"",
            times=task_times.from_ages(now, now - record.since, now - record.leased),
        )


def _work_record(record: _Record) -> WorkRecord:
    return WorkRecord(
        state=record.state,
        tenant=record.tenant,
        kind=record.kind,
        token=record.token,
        failures=record.failures,
        due=record.due if record.state == "delayed" else None,
        lease_ends=record.due if record.state == "leased" else None,
    )


def batch_size(ready: int, workers: int, threads: int, most: int) -> int:
    """Return how many keys go into one RQ job, at most one key for each thread of a worker.

    While few keys are ready, each job has one key, so that every free worker gets a key at once. While many keys are
    ready, a job has many keys, to share RQ's cost.
    """
    share = max(1, workers)
    return max(1, min(most, -(-ready // (2 * share)), -(-threads // share)))
