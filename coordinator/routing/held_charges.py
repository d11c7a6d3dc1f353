"""The comparison of the store's charge for an admitted job with the charge in the job's status.

One rule: pure. The store is never charged less than the status says, so a store that holds less has lost data. The
store may hold more: then a worker has yet to write a growth, or the difference is to be freed. How many workers are
idle growth takes no room, so a difference there alone is no loss: a payment raises the number of growths.
"""

from collections.abc import Iterable
from dataclasses import replace

from coordinator.cache.views import PodView
from coordinator.cache.worker_counts import WorkerCounts
from crds.keys import JobKey
from crds.resources import amounts
from crds.resources.amounts import Amounts
from crds.torchjob import checks
from crds.torchjob.status import Admission
from crds.torchjob.tasks import WORKER
from queues import limits
from queues.store import LoweredCharge
from queues.values import Reservation, Snapshot


def is_short(admission: Admission, held: Reservation | None) -> bool:
    """Return whether the store lacks a part of the charge of an admission. Only a rebuild helps."""
    if held is None or held.attempt < admission.attempt:
        return True
    if held.attempt > admission.attempt:
        return False
    return held.grown < (admission.grown or 0) or bool(_beyond(admission.charge, held.charge))


def is_unwritten_growth(admission: Admission, held: Reservation | None) -> bool:
    """Return whether the store has granted a growth that no worker has written yet, or taken a payment for idle
    workers."""
    return held is not None and held.attempt == admission.attempt and held.grown > (admission.grown or 0)


def find_surplus(admission: Admission, held: Reservation | None) -> LoweredCharge | None:
    """Return the charge that remains for an admission for which the store holds more than it needs; None if it holds no
    more, or if a worker has yet to write a growth."""
    if held is None or (held.attempt, held.grown) != (admission.attempt, admission.grown or 0):
        return None
    if not _beyond(held.charge, admission.charge):
        return None
    return LoweredCharge(
        key=held.key,
        attempt=held.attempt,
        grown=held.grown,
        size=admission.workers or held.size,
        charge=admission.charge,
    )


def freed(held: Reservation, lowered: LoweredCharge) -> Amounts:
    """Return the amounts that a lowered charge frees."""
    return _beyond(held.charge, lowered.charge)


def freed_payment(held: Reservation, lowered: LoweredCharge) -> int:
    """Return the price that a queue has paid for the workers of the last growth that a lowered charge frees. Idle
    growth is freed first, and was not paid.
    """
    workers = max(0, held.size - lowered.size - held.idle)
    return held.paid * min(workers, held.gained) // held.gained if held.gained else 0


def is_needed(held: Reservation, lowered: LoweredCharge, pods: Iterable[PodView]) -> bool:
    """Return whether a job's pods take more than the lowered charge, so that it cannot be freed yet."""
    occupying = [pod for pod in pods if pod.occupies]
    total: dict[str, int] = {}
    for pod in occupying:
        amounts.increase(total, pod.demand)
    takes_more = any(total.get(name, 0) > lowered.charge.get(name, 0) for name in freed(held, lowered))
    return takes_more or occupying_workers(held.key, occupying) > lowered.size > 0


def is_charged_by(charge: Reservation, held: Reservation | None) -> bool:
    """Return whether a reservation covers another reservation of the same job."""
    return held is not None and held.attempt == charge.attempt and not _beyond(charge.charge, held.charge)


def without_workers(charge: Reservation, counts: WorkerCounts, occupying: int) -> Reservation:
    """Return the charge of a job without its workers that have no pods; at least the least number of workers stays."""
    beyond = max(0, occupying - counts.least)
    size = min(charge.size, counts.least + -(-beyond // counts.step) * counts.step)
    rest = amounts.subtract(charge.charge, amounts.scale(counts.share, charge.size - size))
    left = {name: max(0, amount) for name, amount in rest.items()}
    return replace(charge, size=size, charge=left, idle=max(0, charge.idle - (charge.size - size)))


def occupying_workers(key: JobKey, pods: Iterable[PodView]) -> int:
    """Return how many workers of a job hold room."""
    prefix = _without_index(checks.pod_name(key.name, WORKER, 0))
    return sum(pod.occupies and _without_index(pod.name) == prefix for pod in pods)


def are_summed(snapshot: Snapshot, charged: Iterable[Reservation]) -> bool:
    """Return whether the usage of each queue, and of the pool, is the sum of the reservations. The names that a usage
    has are compared, and the names that every store counts: a store may have lost its whole usage."""
    usage = {view.spec.name: view.usage for view in snapshot.queues}
    counts = limits.usage_resources((view.spec for view in snapshot.queues), snapshot.pool)
    names = counts.union(*usage.values(), snapshot.pool_usage)
    total: dict[str, int] = {}
    sums: dict[str, dict[str, int]] = {queue: {} for queue in usage}
    for charge in charged:
        counted = amounts.select(charge.charge, names)
        amounts.increase(total, counted)
        amounts.increase(sums.setdefault(charge.queue, {}), counted)
    pairs = [(snapshot.pool_usage, total), *((usage[queue], sums[queue]) for queue in usage)]
    return not any(any(amounts.subtract(used, summed).values()) for used, summed in pairs)


def _without_index(name: str) -> str:
    return name.rpartition("-")[0]


def _beyond(left: Amounts, right: Amounts) -> Amounts:
    """Return the excess of the given amounts over other amounts, where there is an excess."""
    return {name: amount - right.get(name, 0) for name, amount in left.items() if amount > right.get(name, 0)}
