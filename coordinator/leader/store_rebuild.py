"""The rebuild of the store from the cluster when a term begins, and the audits after it.

One rule: the cluster is the truth. If the store lacks the charge of an admission in the cluster, the whole store is
rebuilt.
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from coordinator.cache.views import JobView
from coordinator.cache.watches import Watches
from coordinator.leader import quota_judgement
from coordinator.leader.queue_configuration import QueueConfiguration
from coordinator.routing import held_charges, rebuilt_state, revoke, route
from coordinator.routing.rebuilt_state import RebuiltState
from coordinator.settings import Settings
from crds.keys import JobKey
from kube.errors import ClusterError
from kube.process.turns import Turn
from queues.errors import Unstorable
from queues.redis import codec
from queues.store import QueueStore
from queues.tasks import Offer
from queues.values import Entry, Reservation
from queues.work import WorkSource

FAILOVER_SECONDS = 3.0
"""After a failover, how long another process may use the old server (`queues.redis.sentinel.BLIND_SECONDS`, and a
second for what it has begun)."""
LOOKS = 2
"""The readings that must agree that a usage is not the sum of the reservations."""
STAGE_SECONDS = 120.0
"""How long each part of a rebuild, an audit or a resync of very many jobs may take. A part that takes longer hangs."""
MOST_REREAD = 100
"""The most jobs that are read again for one rebuild. The number is bounded because users can make any number of pods
that seem newer than their jobs."""
T = TypeVar("T", Entry, Reservation)
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
    turn: Turn = field(default_factory=lambda: Turn("term"))
    _revoked: dict[JobKey, int] = field(default_factory=dict)
    """By job, the attempt whose admission the rebuild has revoked. A worker that finds no charge sends the job back."""
    _reduced: dict[JobKey, Reservation] = field(default_factory=dict)
    """The charges of jobs whose growth the rebuild has revoked. A worker that finds such a charge writes the smaller
    number of workers."""
    _uncharged: frozenset[JobKey] = frozenset()
    """Jobs whose charge the store cannot keep."""

    def rebuild(self, epoch: int) -> None:
        """Rebuild the store from the cluster under a new epoch, and route every unfinished job.

        If the store has lost its data, workers may still be creating pods for admissions that the store does not know.
        While the store has no epoch, it refuses these workers. So the rebuild waits for the duration of one lease, and
        counts the pods after that. Before the very first epoch no job was ever admitted, and the rebuild does not wait.

        If the store is on another server than before, its copy of the data may lack the newest charges, and workers may
        still act on them with the old server. The rebuild counts the pods when all processes have followed.
        """
        self.turn.allow(STAGE_SECONDS)
        self.watches.quota_jobs.touch()
        self.watches.gang_jobs.touch()
        self.watches.port_jobs.touch()
        quota_judgement.judge_due(self.watches, self.configuration.rules, self.clock)
        is_lost = self.store.epoch() == 0
        if is_lost and epoch > 1:
            self._wait_for_workers(epoch)
        self._wait_for_followers()
        charged = {} if is_lost else self.store.all_reservations()
        state = self._rebuilt_state(charged, read=True)
        self.turn.allow(STAGE_SECONDS)
        accepted = self._revoke(state.reservations, charged)
        reservations = _storable(self.watches, accepted)
        entries = _storable(self.watches, state.entries)
        self._uncharged = frozenset(charge.key for charge in accepted) - {charge.key for charge in reservations}
        self.turn.allow(STAGE_SECONDS)
        self.store.rebuild(epoch, reservations, entries)
        self.turn.allow(STAGE_SECONDS)
        self.watches.raised.clear()  # the queues have paid for these in the last term
        log.info("epoch %d: %d reservations, %d waiting", epoch, len(reservations), len(entries))
        self.configuration.apply()
        self._shorten_leases()
        self.watches.mark([charge.key for charge in state.reservations])
        self.watches.mark(charged)
        self.watches.mark_again([job.key for job in self.watches.jobs.values() if job.at_rest])
        self.resync()

    def resync(self) -> None:
        """Route every unfinished job again, except those that are suspended and at rest, and every scale request."""
        self.turn.allow(STAGE_SECONDS)
        jobs = self.watches.jobs.values()
        self.watches.quota_jobs.touch()
        self.watches.mark_again([job.key for job in jobs if not (job.finished or job.at_rest)])
        self.watches.mark_again(self.watches.requests.keys())
        self.watches.touch_settings()

    def audit(self) -> bool:
        """Return whether the store charges every admission that the cluster shows, in full.

        False means that admissions have lost their charge or a growth, for example because Redis was restored from an
        older file, or that a usage is not the sum of the reservations. Only a rebuild helps. The audit also routes
        every charged job again, to find jobs that do not exist any more, and repeats the offers of picks that no worker
        has written. A worker ignores such a pick while the job is held or its queue drains; the pick may have become
        valid again. The audit also shortens leases that would outlive the clock of Redis.
        """
        self.turn.allow(STAGE_SECONDS)
        self._shorten_leases()
        charged = self.store.reservations()
        self.watches.mark_again(charged)
        jobs = {key: self.watches.job(key) for key in charged}
        unwritten = [key for key, job in jobs.items() if job is not None and job.admission is None]
        rules = self.configuration.rules()
        tenants = {key: route.tenant(charged[key].queue, key.namespace, rules) for key in unwritten}
        self.work.offer([Offer(key=key, tenant=tenant) for key, tenant in tenants.items()])
        state = self._rebuilt_state(charged)
        lost = [
            charge for charge in state.reservations if charge.key not in charged and charge.key not in state.leftovers
        ]
        are_revoked = all(self._is_without_charge(charge.key, charge.attempt) for charge in lost)
        return are_revoked and self._are_charged(jobs) and self._is_summed()

    def _shorten_leases(self) -> None:
        late = self.work.shorten_leases()
        if late:
            log.warning("the clock of Redis was set back: %d leases and registrations end earlier now", late)

    def _is_summed(self) -> bool:
        """Return whether usages are the sums of the reservations. A worker may raise a charge between two readings, so
        only a difference that all of several readings show is real."""
        return any(
            held_charges.are_summed(self.store.snapshot(1), self.store.reservations().values()) for _ in range(LOOKS)
        )

    def _are_charged(self, jobs: Mapping[JobKey, JobView | None]) -> bool:
        """Return whether the store holds the right charges for these jobs. The content of the store is read after the
        jobs, so that it is not older than a charge that a worker has raised.
        """
        admitted = {key: job for key, job in jobs.items() if job is not None and job.admission is not None}
        held = self.store.reservations(list(admitted)) if admitted else {}
        return all(self.is_charged(job, held.get(key)) for key, job in admitted.items())

    def is_charged(self, job: JobView, held: Reservation | None) -> bool:
        """Return whether the store holds the right charge for an admitted job. `held` is the charge that the store
        holds.
        """
        key, admission = job.key, job.admission
        if admission is None or not held_charges.is_short(admission, held):
            return True
        if held is None:
            return self._is_without_charge(key, admission.attempt)
        workers = held_charges.occupying_workers(key, self.watches.job_pods(key))
        is_reduced = self._reduced.get(key) == held and held.grown == (admission.grown or 0)
        return key in self._uncharged or (is_reduced and workers <= held.size)

    def _is_without_charge(self, key: JobKey, attempt: int) -> bool:
        """Return whether an admission has no charge on purpose.

        There are two cases. The rebuild has revoked the admission, the job has no pods, and a worker has not sent the
        job back yet. Or the store cannot keep the charge.
        """
        is_revoked = self._revoked.get(key) == attempt and not self.watches.pods_of(key, 0).occupy
        return is_revoked or key in self._uncharged

    def _revoke(
        self, charges: tuple[Reservation, ...], charged: Mapping[JobKey, Reservation]
    ) -> tuple[Reservation, ...]:
        """Return the charges without the charges that are revoked because there is not enough room.

        Only an admission or a growth is revoked that has no pods and that the store did not charge before. Growths come
        first.
        """
        specs, room = self.configuration.specs(), self.configuration.room()
        smaller = self._growths_without_pods(charges, charged)
        self._reduced = revoke.smaller_charges(charges, smaller, specs, room)
        for key in self._reduced:
            log.warning("%s: its last workers are taken back: there is no room for them", key)
        charges = tuple(self._reduced.get(charge.key, charge) for charge in charges)
        firm = {pod.job for pod in self.watches.pods.values() if pod.job is not None}
        firm |= {each.key for each in charges if each.key in charged and charged[each.key].attempt == each.attempt}
        revoked = revoke.excess(charges, firm, specs, room)
        self._revoked = {charge.key: charge.attempt for charge in charges if charge.key in revoked}
        for key in revoked:
            log.warning("%s: its admission is taken back: there is no room for it", key)
        return tuple(charge for charge in charges if charge.key not in revoked)

    def _wait_for_workers(self, epoch: int) -> None:
        """Wait for the duration of one lease. Meanwhile, write the waiting jobs to the store, which takes a while."""
        began, seconds = self.elapsed(), self.settings.lease_seconds
        log.info("the queue store is empty: rebuilding it from the cluster in %.0f s", seconds)
        entries = [entry for entry in self._rebuilt_state({}).entries if entry.kind == "admit"]
        self.store.prepare(epoch, _storable(self.watches, entries))
        left = max(0.0, began + seconds - self.elapsed())
        self.turn.allow(left + STAGE_SECONDS)
        self.pause(left)

    def _wait_for_followers(self) -> None:
        """Wait until no process uses the server that had the store before."""
        left = FAILOVER_SECONDS - self.store.seconds_since_move()
        if left > 0:
            log.info("Redis has failed over: counting again in %.1f s, when all have left the old server", left)
            self.turn.allow(left + STAGE_SECONDS)
            self.pause(left)

    def _rebuilt_state(self, charged: Mapping[JobKey, Reservation], *, read: bool = False) -> RebuiltState:
        """Return the content that the store should have according to the watches.

        `charged` are the reservations that the store has now. With `read`, jobs that are older in the cache than one of
        their pods are read again.
        """
        watches, rules, now = self.watches, self.configuration.rules(), self.clock()
        jobs = {job.key: job for job in watches.jobs.values()}
        pods, nodes = watches.pods.values(), watches.nodes.values() if watches.nodes else None
        unread = self._reread(jobs, rebuilt_state.jobs_to_reread(jobs, pods, charged)) if read else frozenset()
        result = rebuilt_state.compute(jobs.values(), pods, charged, rules, now, nodes=nodes, unread=unread)
        for key, error in result.errors.items():
            watches.skip(key, error)
        return result

    def _reread(self, jobs: dict[JobKey, JobView], keys: list[JobKey]) -> frozenset[JobKey]:
        """Read these jobs into `jobs`; return the keys of the jobs that could not be read."""
        for number, key in enumerate(keys[:MOST_REREAD]):
            try:
                newest = self.watches.read(key)
            except ClusterError as error:
                log.warning("jobs cannot be read again, so what their pods say is believed: %s", error)
                return frozenset(keys[number:])
            del jobs[key]
            if newest is not None:
                jobs[key] = newest
        return frozenset(keys[MOST_REREAD:])

    def _growths_without_pods(
        self, charges: Iterable[Reservation], charged: Mapping[JobKey, Reservation]
    ) -> dict[JobKey, Reservation]:
        """Return by job the charge that it would hold without its added workers that have no pods and that the store
        did not charge.
        """
        result = {}
        for charge in charges:
            job = self.watches.job(charge.key)
            is_covered = held_charges.is_charged_by(charge, charged.get(charge.key))
            if job is None or job.workers is None or not charge.grown or is_covered:
                continue
            occupying = held_charges.occupying_workers(charge.key, self.watches.job_pods(charge.key))
            smaller = held_charges.without_workers(charge, job.workers, occupying)
            if smaller.size < charge.size:
                result[charge.key] = smaller
        return result


def _storable(watches: Watches, values: Iterable[T]) -> tuple[T, ...]:
    """Return the values that the store can keep; skip and record the other values."""
    result: list[T] = []
    for value in values:
        try:
            codec.check(value)
        except Unstorable as error:
            watches.skip(value.key, error)
        else:
            result.append(value)
    return tuple(result)
