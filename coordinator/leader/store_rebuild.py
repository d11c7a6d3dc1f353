"""Bringing the store in line with the cluster: once when a term begins, and audited from then on.

One rule: the cluster is the truth. A store that lacks a charge which the cluster shows is rebuilt as a whole.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from coordinator.cache.watches import Watches
from coordinator.leader import quota_judgement, watched_state
from coordinator.leader.queue_configuration import QueueConfiguration
from coordinator.routing import route
from coordinator.routing.rebuilt_state import RebuiltState
from coordinator.settings import Settings
from crds.keys import JobKey
from queues.store import QueueStore
from queues.values import Offer, Reservation
from queues.work import WorkSource

log = logging.getLogger(__name__)


@dataclass(slots=True)
class StoreRebuild:
    """The rebuild and the audits of one term."""

    watches: Watches
    store: QueueStore
    work: WorkSource
    settings: Settings
    configuration: QueueConfiguration
    clock: Callable[[], float]
    pause: Callable[[float], object]
    elapsed: Callable[[], float]
    _revoked: dict[JobKey, int] = field(default_factory=dict)
    """The attempts whose admission the rebuild took back. A worker that finds no charge sends these jobs back."""
    _uncharged: frozenset[JobKey] = frozenset()
    """Jobs whose charge the store cannot keep."""

    def rebuild(self, epoch: int) -> None:
        """Bring the store in line with the cluster under a new epoch, and route every unfinished job.

        If the store has lost everything, workers may still be creating pods for admissions that the store does not
        know. The missing epoch refuses these workers. So the rebuild waits for one lease, and counts the pods then. In
        the very first epoch no job has ever been admitted, and the rebuild does not wait.
        """
        self.watches.quota_jobs.touch()
        self._judge_quotas()
        is_lost = self.store.epoch() == 0
        if is_lost and epoch > 1:
            self._wait_for_workers(epoch)
        charged = {} if is_lost else self.store.all_reservations()
        census = self._census(charged, read=True)
        accepted = self._revoke(census.reservations, charged)
        reservations = watched_state.storable(self.watches, accepted)
        entries = watched_state.storable(self.watches, census.entries)
        self._uncharged = frozenset(charge.key for charge in accepted) - {charge.key for charge in reservations}
        self.store.rebuild(epoch, reservations, entries)
        self.watches.raised.clear()  # in the last term, the queues have paid for these
        log.info("epoch %d: %d reservations, %d waiting", epoch, len(reservations), len(entries))
        self.configuration.apply()
        self.watches.mark([charge.key for charge in census.reservations])
        self.watches.mark(charged)
        self.watches.mark_again([job.key for job in self.watches.jobs.values() if job.at_rest])
        self.resync()

    def resync(self) -> None:
        """Route every unfinished job again, except those that are suspended and at rest."""
        jobs = self.watches.jobs.values()
        self.watches.quota_jobs.touch()
        self.watches.mark_again([job.key for job in jobs if not (job.finished or job.at_rest)])
        self.watches.touch_settings()

    def audit(self) -> bool:
        """Return whether the store charges every admission that the cluster shows.

        False means that admissions have lost their charge, as when Redis came back from an older file; only a rebuild
        helps. The audit also routes every charged job again, for jobs that do not exist any more, and offers again the
        picks that no worker has written. A worker leaves such a pick alone while the job is held or its queue drains;
        it may be valid again since.
        """
        charged = self.store.reservations()
        self.watches.mark_again(charged)
        jobs = {key: self.watches.job(key) for key in charged}
        unwritten = [key for key, job in jobs.items() if job is not None and job.admission is None]
        rules = self.configuration.rules()
        tenants = {key: route.tenant(charged[key].queue, key.namespace, rules) for key in unwritten}
        self.work.offer([Offer(key=key, tenant=tenant) for key, tenant in tenants.items()])
        census = self._census(charged)
        lost = [
            charge for charge in census.reservations if charge.key not in charged and charge.key not in census.leftovers
        ]
        return all(self.is_without_charge(charge.key, charge.attempt) for charge in lost)

    def is_without_charge(self, key: JobKey, attempt: int) -> bool:
        """Return whether an admission has no charge on purpose.

        The rebuild took it back, and a worker has yet to send the job back, which has no pods; or the store cannot
        keep its charge.
        """
        is_revoked = self._revoked.get(key) == attempt and not self.watches.pods_of(key, 0).occupy
        return is_revoked or key in self._uncharged

    def _judge_quotas(self) -> None:
        quota_judgement.judge_due(self.watches, self.configuration.rules, self.clock)

    def _revoke(
        self, charges: tuple[Reservation, ...], charged: Mapping[JobKey, Reservation]
    ) -> tuple[Reservation, ...]:
        """Return the charges without those for which there is no room.

        Only an admission without pods, which the store did not charge before, is taken back.
        """
        specs, room = self.configuration.specs(), self.configuration.room()
        revoked = watched_state.admissions_without_room(self.watches, charges, charged, specs, room)
        self._revoked = {charge.key: charge.attempt for charge in charges if charge.key in revoked}
        for key in revoked:
            log.warning("%s: its admission is taken back: there is no room for it", key)
        return tuple(charge for charge in charges if charge.key not in revoked)

    def _wait_for_workers(self, epoch: int) -> None:
        """Wait until a lease has passed since now. Meanwhile, give the store the waiting jobs, which takes its time."""
        began, seconds = self.elapsed(), self.settings.lease_seconds
        log.info("the queue store is empty: rebuilding it from the cluster in %.0f s", seconds)
        waiting = watched_state.storable(self.watches, self._census({}).entries)
        self.store.prepare(epoch, waiting)
        self.pause(max(0.0, began + seconds - self.elapsed()))

    def _census(self, charged: Mapping[JobKey, Reservation], *, read: bool = False) -> RebuiltState:
        return watched_state.take(self.watches, charged, self.configuration.rules(), self.clock(), read=read)
