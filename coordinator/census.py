"""What the cluster says of every job, as the store should hold it after a loss or a change of leader.

One rule: pure. The cluster is the truth; what the old store held counts only for a job whose admission no worker has
written yet.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import reduce

from coordinator import route, standing
from coordinator.standing import Rules
from coordinator.views import JobView, PodView
from crds import amounts
from crds.amounts import JOBS
from crds.keys import JobKey
from queues.values import Entry, Reservation


@dataclass(frozen=True, slots=True)
class Census:
    """The content of a rebuilt store."""

    reservations: tuple[Reservation, ...]
    entries: tuple[Entry, ...]


def take(
    jobs: Iterable[JobView],
    pods: Iterable[PodView],
    held: Mapping[JobKey, Reservation],
    rules: Rules,
    now: float,
) -> Census:
    """Charge every admitted job and every occupying pod; everybody else who may wait, waits."""
    by_key = {job.key: job for job in jobs}
    occupying: dict[JobKey, list[PodView]] = {}
    for pod in pods:
        if pod.job is not None and pod.occupies:
            occupying.setdefault(pod.job, []).append(pod)
    charged = {
        key: reservation
        for key in by_key.keys() | occupying.keys()
        if (reservation := charge(key, by_key.get(key), occupying.get(key, []))) is not None
    }
    waiting = {key: job for key, job in by_key.items() if key not in charged and waits(job, rules, now)}
    picked = {key: held[key] for key in held.keys() & waiting.keys() if held[key].attempt == waiting[key].attempt + 1}
    entries = (route.entry(job, rules) for key, job in waiting.items() if key not in picked)
    return Census((*charged.values(), *picked.values()), tuple(entries))


def charge(key: JobKey, job: JobView | None, occupying: list[PodView]) -> Reservation | None:
    """What one job has to be charged for by what the cluster shows; None if that is nothing."""
    if job is not None and job.admission is not None and (occupying or not (job.finished or job.deleting)):
        return _admitted(job)
    if occupying:
        return _leftover(key, job, occupying)
    return None


def waits(job: JobView, rules: Rules, now: float) -> bool:
    """Whether a job without a charge has its place in a queue."""
    over = job.finished or job.deleting or job.suspended or job.invalid or job.admission is not None
    return not over and standing.of(job, rules, now).ordered


def _admitted(job: JobView) -> Reservation:
    admission = job.admission
    assert admission is not None
    return Reservation(
        key=job.key,
        queue=admission.queue,
        attempt=admission.attempt,
        epoch=admission.epoch,
        charge=admission.charge,
        pick=admission.pick,
        port=admission.port,
    )


def _leftover(key: JobKey, job: JobView | None, occupying: list[PodView]) -> Reservation:
    """Pods of a job that has vanished or lost its admission: they take room until they are gone."""
    share = reduce(amounts.add, (pod.demand for pod in occupying), {JOBS: 1})
    queue = occupying[0].queue or (job.queue if job else key.namespace)
    return Reservation(key=key, queue=queue, attempt=max(pod.attempt for pod in occupying), epoch=0, charge=share)
