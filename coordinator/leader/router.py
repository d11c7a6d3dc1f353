"""The routing of changed jobs: entries are put into the store or removed, and keys are offered to workers.

One rule: the queue store is changed first, and the work is offered second. So a worker finds the store up to date.
"""

import heapq
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NamedTuple

from coordinator.cache.views import JobView
from coordinator.cache.watches import DirtyKey, Watches
from coordinator.errors import CoordinatorError
from coordinator.leader import error_isolation
from coordinator.leader.charge_lowering import ChargeLowering
from coordinator.leader.charge_release import ChargeRelease
from coordinator.leader.queue_configuration import QueueConfiguration
from coordinator.leader.queued_limiter import QueuedLimiter
from coordinator.leader.reasons import Reasons
from coordinator.leader.store_rebuild import StoreRebuild
from coordinator.routing import held_charges, route
from coordinator.routing.route import Route
from coordinator.settings import Settings
from crds import integers
from crds.keys import JobKey
from kube.process.meter import NO_METER, Meter
from queues.pick_cycle import PickCycle
from queues.store import QueueStore
from queues.tasks import Offer
from queues.values import Entry, Reservation
from queues.work import WorkSource

MOST_PER_STEP = 512
"""The most keys that are routed per step, which bounds how long picks wait when many events arrive."""

UNSEEN_SECONDS = 2.0
"""How soon a key is routed again while no worker has seen its scale request: the cache of a worker may be behind."""


class MissingCharge(CoordinatorError):
    """The cluster shows an admission for which the store has no charge; only a rebuild helps."""


class Flushed(NamedTuple):
    """The numbers of jobs that one flush has handled."""

    routed: int
    freed: int
    """The number of charges that were freed or lowered after an earlier attempt had failed."""


class DelayedKeys:
    """The times at which jobs are routed again because time alone changes their routes: one per key, in seconds since
    1970. Nothing here is stored: the next leader computes it again from the jobs."""

    def __init__(self) -> None:
        self._at: dict[JobKey, float] = {}
        self._heap: list[tuple[float, JobKey]] = []

    def __len__(self) -> int:
        return len(self._at)

    def set(self, key: JobKey, at: float) -> None:
        """Set the time at which the key is due, and drop its earlier time; 0: never."""
        if self._at.get(key, 0.0) == at:
            return
        self._at.pop(key, None)
        if at:
            self._at[key] = at
            heapq.heappush(self._heap, (at, key))
        if len(self._heap) > 2 * len(self._at) + 64:
            self._heap = [(time, key) for key, time in self._at.items()]
            heapq.heapify(self._heap)

    def take_due(self, now: float) -> Iterator[JobKey]:
        """Remove and yield the keys whose time has come."""
        while self._heap and self._heap[0][0] <= now:
            at, key = heapq.heappop(self._heap)
            if self._at.get(key) == at:
                del self._at[key]
                yield key


@dataclass(slots=True)
class Router:
    """Routes jobs during one term of the leader, in one thread."""

    watches: Watches
    store: QueueStore
    work: WorkSource
    settings: Settings
    pick_cycle: PickCycle
    configuration: QueueConfiguration
    rebuild: StoreRebuild
    lowering: ChargeLowering
    reasons: Reasons | None
    """What is told of the reason that a job waits."""
    clock: Callable[[], float]
    elapsed: Callable[[], float]
    """Seconds of a clock that is never set, for waits."""
    meter: Meter = NO_METER
    changed: bool = False
    """Whether the store has changed since the control loop last asked, so that a cycle may find jobs to pick."""
    _limiter: QueuedLimiter = field(init=False)
    _charge_release: ChargeRelease = field(init=False)
    _growing: frozenset[JobKey] = frozenset()
    """The jobs that were put as growths."""
    _delayed_keys: DelayedKeys = field(default_factory=DelayedKeys)
    """The times at which time alone changes the route of a job."""

    def __post_init__(self) -> None:
        self._limiter = QueuedLimiter(self.elapsed)
        self._charge_release = ChargeRelease(
            self.watches,
            self.store,
            self.pick_cycle,
            self.settings,
            self.elapsed,
            self.configuration,
            lambda key: self._route(key, 0),
            self.meter,
        )

    def flush(self) -> Flushed:
        """Route what changed. If the store cannot be reached, the keys stay marked and the error is raised."""
        self.watches.mark(self._delayed_keys.take_due(self.clock()))
        lowered = self.lowering.lower_again()
        self.watches.mark(lowered)  # a growth of such a job was not put
        freed = self._charge_release.free_again() + len(lowered)
        self.changed |= bool(freed)
        dirty = self.watches.take(MOST_PER_STEP)
        if not dirty:
            return Flushed(0, freed)
        try:
            # The version is read first, so that every decision below is based on pods that are at least as new.
            pods_version = self.watches.pods.resource_version
            error_isolation.act_on_all(
                dirty, partial(self._flush, pods_version), lambda item, error: self.watches.skip(item.key, error)
            )
        except BaseException:
            for item in dirty:
                self.watches.mark([item.key], item.pods_version)
            raise
        return Flushed(len(dirty), freed)

    def hand_over(self, picked: Iterable[JobKey]) -> None:
        """Tell workers what is known of jobs that were just picked. Nobody writes any more that these jobs wait."""
        keys = list(picked)
        self._brief(key for key in keys if not self._is_being_written(key))
        for key in keys:
            self._limiter.discard(key)

    def _is_being_written(self, key: JobKey) -> bool:
        """Return whether somebody may be writing the status of a job, or has and the watch has not shown it yet."""
        return self._limiter.is_unanswered(key) or (self.reasons is not None and self.reasons.lane.is_under_way(key))

    def _brief(self, keys: Iterable[JobKey]) -> None:
        briefs = {key: job.brief for key in keys if (job := self.watches.job(key)) is not None and job.brief}
        if briefs:
            self.work.brief(briefs)

    def offer_next(self) -> int:
        """Offer the jobs that only need a write of their status and whose turn has come; return how many.

        If the store cannot be reached, the jobs wait for another turn and the error is raised.
        """
        due = self._limiter.take_due()
        try:
            if due:
                self._brief(offer.key for offer in due)
                self.work.offer(due)
        except BaseException:
            self.watches.mark_again([offer.key for offer in due])
            raise
        self._note_written(offer.key for offer in due)
        return len(due)

    def _note_written(self, keys: Iterable[JobKey]) -> None:
        """Note which jobs have a status that describes their newest spec. The next run of such a job, which a suspended
        job has after each change, hardly writes anything, and delays no write for another job."""
        for key in keys:
            job = self.watches.job(key)
            if job is not None and job.phase and job.observed:
                self._limiter.note_written(key)

    def _flush(self, pods_version: int, dirty: Sequence[DirtyKey]) -> None:
        self._apply([self._route_dirty(item) for item in dirty], [item.key for item in dirty], pods_version)
        self.watches.clear_errors(item.key for item in dirty)

    def _route_dirty(self, dirty: DirtyKey) -> Route:
        """Return the route of a key. If a change of the job or its pods is the only reason, the offer names the job's
        resourceVersion, and is void if a worker has settled that version.
        """
        result = self._route(dirty.key, dirty.pods_version)
        job = self.watches.job(dirty.key) if dirty.only_changed else None
        version = integers.parse(job.version, 0) if job is not None else 0
        if result.offer is None or result.offer.delay or not version:
            return result
        return replace(result, offer=replace(result.offer, version=version))

    def _route(self, key: JobKey, pods_version: int) -> Route:
        pods = self.watches.pods_of(key, pods_version)
        job, rules = self.watches.job(key), self.configuration.rules()
        result = route.route(key, job, pods, rules, self.clock())
        if not self.watches.requests.has(key):
            return result
        again = self.clock() + UNSEEN_SECONDS if self.watches.requests.is_unseen(key) else 0.0
        found = route.with_requests(result, key, job, pods, rules, again)
        # The key of a request without a job was never charged, and its delayed run is its timeout.
        return replace(found, remove=found.remove and not self.watches.requests.awaits_job(key))

    def _apply(self, routes: list[Route], keys: list[JobKey], pods_version: int) -> None:
        """Carry out routes: change the queues first, then offer work."""
        compared = self._compared(keys, routes)
        held = self.store.reservations([job.key for job in compared]) if compared else {}
        lowered = self.lowering.lower(compared, held, pods_version)
        puts, withdrawn = self._entries(keys, routes)
        removes = self._charge_release.find(keys, routes)
        offers = self._immediate_offers(keys, routes, _with_unwritten_growth(compared, held))
        deleted = [key for key in removes if self.watches.job(key) is None]
        if deleted:  # this comes before the charge is freed: while the key has a charge, every rebuild routes it again
            self.work.drop(deleted)
        if removes:
            self._charge_release.free(removes, pods_version)
        if withdrawn:
            self.store.withdraw(withdrawn)
        if puts:
            self.store.put(puts)
        if offers:
            self.work.offer(offers)
        for key, result in zip(keys, routes, strict=True):
            self._delayed_keys.set(key, result.due_at)
            job = self.watches.job(key)
            if job is not None and self.reasons is not None:
                self.reasons.note(job, result.reason)
        self.changed |= bool(puts or removes or lowered) or self._note_growing(puts, [*withdrawn, *removes])
        if not all(self.rebuild.is_charged(job, held.get(job.key)) for job in compared):
            # A job that was suspended and resumed while it was being admitted may hold room that was just freed.
            raise MissingCharge("the store charges less than an admission says")

    def _note_growing(self, puts: Iterable[Entry], withdrawn: Iterable[JobKey]) -> bool:
        """Record which jobs wait for more workers; return whether one of them waits no more, so that others may go."""
        waiting = self._growing
        self._growing = waiting.difference(withdrawn) | {entry.key for entry in puts if entry.kind == "grow"}
        return not waiting <= self._growing

    def _compared(self, keys: list[JobKey], routes: list[Route]) -> list[JobView]:
        """Return the admitted jobs whose status is compared with the store. They are read before the store, so that no
        charge in them is newer than the store's."""
        jobs = [self.watches.job(key) for key, result in zip(keys, routes, strict=True) if result.compared]
        return [job for job in jobs if job is not None and job.admission is not None]

    def _entries(self, keys: list[JobKey], routes: list[Route]) -> tuple[list[Entry], list[JobKey]]:
        """Return the entries to put, and the jobs whose growth is withdrawn. A job does not grow while a part of its
        charge is to be freed."""
        puts = [result.put for result in routes if result.put is not None]
        early = {entry.key for entry in puts if entry.kind == "grow" and entry.key in self.lowering}
        withdrawn = [key for key, result in zip(keys, routes, strict=True) if result.withdraw or key in early]
        return [entry for entry in puts if entry.key not in early], withdrawn

    def _immediate_offers(self, keys: list[JobKey], routes: list[Route], grown: Collection[JobKey]) -> list[Offer]:
        """Return the offers that are made at once. The other offers wait for their turn.

        The keys of `grown` are offered even if a worker has settled the version of the job: no worker has written their
        growth.
        """
        offers: list[Offer] = []
        for key, result in zip(keys, routes, strict=True):
            if result.offer is not None and result.in_turn:
                self._note_written([key])
                self._limiter.add(result.offer)
                continue
            self._limiter.discard(key)
            if result.offer is not None:
                offers.append(replace(result.offer, version=0) if key in grown else result.offer)
        return offers


def _with_unwritten_growth(jobs: list[JobView], held: Mapping[JobKey, Reservation]) -> frozenset[JobKey]:
    return frozenset(
        job.key
        for job in jobs
        if job.admission is not None and held_charges.is_unwritten_growth(job.admission, held.get(job.key))
    )
