"""The release of the charges of jobs that hold nothing any more.

One rule: a charge is freed last. While this process may not have seen all pods of the job, the charge is kept, and its
release is tried again.
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from coordinator.cache.views import JobView
from coordinator.cache.watches import Watches
from coordinator.leader import error_isolation
from coordinator.leader.queue_configuration import QueueConfiguration
from coordinator.routing import eligibility, route
from coordinator.routing.route import Route
from coordinator.settings import Settings
from crds.keys import JobKey
from kube.process.meter import Meter
from queues.pick_cycle import PickCycle
from queues.store import QueueStore
from queues.values import Entry, Reservation
from reconcilers.metrics import HELD_SECONDS

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class UnfreedCharge:
    """A charge that could not be freed, with the times of the first and the last attempt to free it."""

    since: float
    asked_at: float


@dataclass(slots=True)
class ChargeRelease:
    """Frees charges during one term of the leader, in one thread."""

    watches: Watches
    store: QueueStore
    pick_cycle: PickCycle
    settings: Settings
    elapsed: Callable[[], float]
    """Seconds of a clock that is never set: a charge that is freed early would be given twice."""
    configuration: QueueConfiguration
    route: Callable[[JobKey], Route]
    """A function that returns the route of a key by the newest state."""
    meter: Meter
    _unfreed: dict[JobKey, UnfreedCharge] = field(default_factory=dict)
    """The jobs whose charge could not be freed yet. As far as this process has seen, they hold nothing any more."""

    def find(self, keys: list[JobKey], routes: list[Route]) -> list[JobKey]:
        """Return the keys whose charges are to be freed.

        Such charges belong to jobs that hold nothing any more, jobs that are charged for an attempt that is over, and
        jobs whose owner edited them after they were charged.
        """
        puts = {
            key: result.put
            for key, result in zip(keys, routes, strict=True)
            if result.put is not None and result.put.kind == "admit"  # a job that grows keeps what it holds
        }
        charges = self.store.reservations(list(puts)) if puts else {}
        over = {key: result.finished_attempt for key, result in zip(keys, routes, strict=True)}
        outdated = {
            key
            for key, charge in charges.items()
            if charge.attempt <= over[key] or self._is_outdated(puts[key], charge)
        }
        return [key for key, result in zip(keys, routes, strict=True) if result.remove or key in outdated]

    def _is_outdated(self, entry: Entry, charge: Reservation) -> bool:
        """Return whether a job requests other amounts than those it is charged for. A job that is gone is routed
        again."""
        job = self.watches.job(entry.key)
        return job is not None and not route.is_charged_in_full(job, entry, charge)

    def free(self, keys: list[JobKey], pods_version: int) -> None:
        """Free the charges of these jobs. `pods_version` is the newest resourceVersion of pods that this process knows.

        The store keeps a charge while a worker may know newer pods. After one resync period the charge is freed in any
        case. A worker that ran the key has lost the key by that time. An API server that was restored from a backup may
        never reach its earlier versions.
        """
        now, refunds = self.elapsed(), self._refunds(keys)
        since = {key: self._unfreed.pop(key).since if key in self._unfreed else now for key in keys}
        late = [key for key in keys if now - since[key] >= self.settings.resync_seconds]
        refused = self.store.remove([key for key in keys if key not in late], pods_version)
        if late:
            self.store.remove(late)
        self._unfreed |= {key: UnfreedCharge(since[key], now) for key in refused}
        freed = [key for key in keys if key not in self._unfreed]
        self.pick_cycle.forget(freed)
        self._measure(freed)
        for charge in refunds:
            if charge.key not in refused:
                self.pick_cycle.refund(charge.queue, charge.paid)

    def _measure(self, freed: Iterable[JobKey]) -> None:
        """Measure for how long these jobs have held room after their end."""
        now = self.watches.ends.clock()
        for key in freed:
            if (end := self.watches.ends.take(key)) is not None:
                if end.pods:
                    self.meter.observe(HELD_SECONDS, end.settled - end.seen, "reconcile")
                self.meter.observe(HELD_SECONDS, max(0.0, now - end.settled), "release")
                log.debug("%s: end seen %.4f, settled %.4f, charge freed %.4f", key, end.seen, end.settled, now)

    def free_again(self) -> int:
        """Free the charges that could not be freed before; return how many were freed."""
        if not self._unfreed:
            return 0
        now, pods_version = self.elapsed(), self.watches.pods.resource_version
        due = [key for key, charge in self._unfreed.items() if now - charge.asked_at >= self.settings.dispatch_seconds]
        candidates: list[JobKey] = []
        error_isolation.act_on_all(due, lambda keys: self._free_due(keys, pods_version, candidates), self.watches.skip)
        freed = [key for key in candidates if key not in self._unfreed]
        waiting = [key for key in freed if (job := self.watches.job(key)) is not None and job.competes]
        self.watches.mark(waiting)  # they still have to be put into the store
        return len(freed)

    def _free_due(self, due: Sequence[JobKey], pods_version: int, candidates: list[JobKey]) -> None:
        """Try to free these charges, and append their keys to `candidates`; forget charges that are needed again."""
        keys = self.find(list(due), [self.route(key) for key in due])
        for key in set(due) - set(keys):
            self._unfreed.pop(key, None)
        if keys:
            self.free(keys, pods_version)
        candidates += keys

    def _refunds(self, keys: list[JobKey]) -> list[Reservation]:
        """Return the picks among these charges that are refunded to their queues.

        A pick is refunded if it was never granted, because an admin took the queue from the job before; or if the job
        was granted the room and the coordinator took it back because its scheduler had not bound the job. Otherwise, a
        pick that was granted is never refunded, whether the job ran or not: it held room. A pick whose job was
        suspended, held, edited or deleted before the grant is not refunded either. The room of the job was idle, and
        with a refund the owner could get the next turn at once, repeatedly and for free.
        """
        jobs = {key: job for key in keys if (job := self.watches.job(key)) is not None and job.competes}
        charges = self.store.reservations(list(jobs)) if jobs else {}
        return [charge for key, charge in charges.items() if self._is_refunded(charge, jobs[key])]

    def _is_refunded(self, charge: Reservation, job: JobView) -> bool:
        if charge.attempt > job.attempt:
            return eligibility.is_withdrawn(charge.queue, charge.key.namespace, self.configuration.rules())
        is_newest = charge.attempt == job.attempt and job.phase == "Queued"
        return is_newest and job.waits is not None and job.waits.waits_for_scheduler
