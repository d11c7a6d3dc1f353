"""The lowering of the charges of jobs that need less than before: they have fewer workers, or declined a growth.

One rule: a part of a charge is freed as a whole charge is: last. While this process sees a pod that needs it, or may
not have seen all pods of the job, the charge stays, and its lowering is tried again.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from coordinator.cache.views import JobView
from coordinator.cache.watches import Watches
from coordinator.leader import error_isolation
from coordinator.leader.charge_release import UnfreedCharge
from coordinator.routing import held_charges
from coordinator.settings import Settings
from crds.keys import JobKey
from queues.pick_cycle import PickCycle
from queues.store import LoweredCharge, QueueStore
from queues.values import Reservation


@dataclass(slots=True)
class ChargeLowering:
    """Lowers charges during one term of the leader, in one thread."""

    watches: Watches
    store: QueueStore
    pick_cycle: PickCycle
    settings: Settings
    elapsed: Callable[[], float]
    """Seconds of a clock that is never set: a charge that is freed early would be given twice."""
    _unfreed: dict[JobKey, UnfreedCharge] = field(default_factory=dict)
    """The jobs whose charge could not be lowered yet."""

    def __contains__(self, key: object) -> bool:
        """Return whether the charge of a job is still to be lowered."""
        return key in self._unfreed

    def lower(self, jobs: Iterable[JobView], held: Mapping[JobKey, Reservation], pods_version: int) -> list[JobKey]:
        """Lower the charges of these jobs to the amounts of their admissions; return the keys whose charge was lowered.

        `held` are the reservations of the jobs, read after the jobs. `pods_version` is the newest resourceVersion of
        pods that this process knows. A growth that was declined before it was granted is refunded to its queue, unless
        the growth is idle growth, for which no queue pays.
        """
        now = self.elapsed()
        admissions = {job.key: job.admission for job in jobs if job.admission is not None}
        found = [held_charges.find_surplus(admission, held.get(key)) for key, admission in admissions.items()]
        surplus = {change.key: change for change in found if change is not None}
        since = {key: self._unfreed.pop(key).since if key in self._unfreed else now for key in surplus}
        for key in admissions:
            self._unfreed.pop(key, None)
        idle = [
            change
            for key, change in surplus.items()
            if not held_charges.is_needed(held[key], change, self.watches.job_pods(key))
        ]
        refused = self._write(idle, since, pods_version)
        lowered = [change.key for change in idle if change.key not in refused]
        self._unfreed |= {key: UnfreedCharge(since[key], now) for key in surplus if key not in lowered}
        self.watches.node_changes.note_charges(lowered)
        for key in lowered:
            admission, refund = admissions[key], held_charges.freed_payment(held[key], surplus[key])
            if refund and admission is not None and admission.grown and admission.declined == admission.grown:
                self.pick_cycle.refund(held[key].queue, refund)
        return lowered

    def lower_again(self) -> list[JobKey]:
        """Lower the charges that could not be lowered before; return the keys whose charge was lowered."""
        if not self._unfreed:
            return []
        now, pods_version = self.elapsed(), self.watches.pods.resource_version
        due = [key for key, charge in self._unfreed.items() if now - charge.asked_at >= self.settings.dispatch_seconds]
        lowered: list[JobKey] = []
        error_isolation.act_on_all(due, lambda keys: self._lower_due(keys, pods_version, lowered), self.watches.skip)
        return lowered

    def _lower_due(self, due: Sequence[JobKey], pods_version: int, lowered: list[JobKey]) -> None:
        """Try to lower these charges, and append the keys whose charge was lowered; forget jobs that hold no room."""
        jobs = [job for key in due if (job := self.watches.job(key)) is not None and job.admission is not None]
        keys = [job.key for job in jobs]
        for key in set(due) - set(keys):
            self._unfreed.pop(key, None)
        if keys:
            lowered += self.lower(jobs, self.store.reservations(keys), pods_version)

    def _write(
        self, changes: list[LoweredCharge], since: Mapping[JobKey, float], pods_version: int
    ) -> frozenset[JobKey]:
        """Lower charges in the store; return the keys whose charge stays.

        The store keeps a charge while a worker may know newer pods. After one resync period the charge is lowered in
        any case, as `ChargeRelease.free` frees it.
        """
        now = self.elapsed()
        late = [change for change in changes if now - since[change.key] >= self.settings.resync_seconds]
        early = [change for change in changes if change not in late]
        refused = self.store.lower(early, pods_version) if early else []
        if late:
            self.store.lower(late)
        return frozenset(refused)
