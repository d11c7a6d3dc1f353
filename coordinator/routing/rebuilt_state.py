"""The content that the store should have, computed from the cluster: a rebuild writes it, and an audit compares with
it.

One rule: pure. The cluster is the truth. The content of the old store is used in three cases only: for a job whose
admission no worker has written yet, for an admitted job whose growth no worker has written yet, and for pods whose job
does not record their charge.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial

from coordinator.cache.node_views import NodeView
from coordinator.cache.routing_rules import RoutingRules
from coordinator.cache.views import JobView, PodView
from coordinator.routing import eligibility, growth_entries, held_charges, pod_charges, route
from crds.keys import JobKey
from crds.torchjob.status import Admission
from queues.values import Entry, Reservation


@dataclass(frozen=True, slots=True)
class RebuiltState:
    """The content of a rebuilt store."""

    reservations: tuple[Reservation, ...]
    entries: tuple[Entry, ...]
    leftovers: frozenset[JobKey] = frozenset()
    """The jobs that are charged only because their pods say so."""
    errors: Mapping[JobKey, Exception] = field(default_factory=dict)
    """The jobs that raised an unforeseen error. They are in none of the other fields, or at least have no growth."""


def compute(
    jobs: Iterable[JobView],
    pods: Iterable[PodView],
    charged: Mapping[JobKey, Reservation],
    rules: RoutingRules,
    now: float,
    *,
    nodes: Iterable[NodeView] | None = None,
    unread: Collection[JobKey] = (),
) -> RebuiltState:
    """Charge every admitted job and every occupying pod. Every other job gets an entry if it may wait. An admitted job
    gets an entry if it waits for more workers.

    `charged` are the charges of the old store. `nodes` limit the charges of pods; None if the nodes are not known.
    `unread` are jobs that may be older in `jobs` than in the cluster.
    """
    by_key = {job.key: job for job in jobs}
    room = None if nodes is None else {node.name: dict(node.allocatable) for node in nodes}
    rebuild_job = partial(_rebuild_job, rules=rules, now=now, room=room, unread=unread)
    content: dict[JobKey, Reservation | Entry] = {}
    leftovers, errors = set(), {}
    occupying = _occupying(pods)
    for key in [*by_key, *sorted(occupying.keys() - by_key.keys())]:
        try:
            value, is_leftover = rebuild_job(key, by_key.get(key), occupying.get(key, []), charged.get(key))
        except Exception as error:
            errors[key] = error
            continue
        if value is not None:
            content[key] = value
        if is_leftover:
            leftovers.add(key)
    reservations = tuple(value for value in content.values() if isinstance(value, Reservation))
    entries = tuple(value for value in content.values() if isinstance(value, Entry))
    growths = _growths(reservations, by_key, rules, now, errors)
    return RebuiltState(reservations, entries + growths, frozenset(leftovers), errors)


def _growths(
    reservations: Iterable[Reservation],
    jobs: Mapping[JobKey, JobView],
    rules: RoutingRules,
    now: float,
    errors: dict[JobKey, Exception],
) -> tuple[Entry, ...]:
    """Return the entries of the admitted jobs that wait for more workers."""
    entries = []
    for charge in reservations:
        try:
            entry = growth_entries.entry(jobs[charge.key], rules, now) if charge.key in jobs else None
        except Exception as error:
            errors[charge.key] = error
            continue
        if entry is not None and entry.grown == charge.grown:
            entries.append(entry)
    return tuple(entries)


def _occupying(pods: Iterable[PodView]) -> dict[JobKey, list[PodView]]:
    """Return the pods of each job that hold room."""
    by_job: dict[JobKey, list[PodView]] = {}
    for pod in pods:
        if pod.job is not None and pod.occupies:
            by_job.setdefault(pod.job, []).append(pod)
    return by_job


def jobs_to_reread(
    jobs: Mapping[JobKey, JobView], pods: Iterable[PodView], charged: Mapping[JobKey, Reservation]
) -> list[JobKey]:
    """Return the jobs to read again, because their pods seem newer than the jobs."""
    keys = {
        pod.job: None
        for pod in pods
        if pod.job is not None
        and pod.occupies
        and pod.job not in charged
        and pod_charges.is_newer(pod, jobs.get(pod.job))
    }
    return list(keys)


def _rebuild_job(
    key: JobKey,
    job: JobView | None,
    occupying: list[PodView],
    charge: Reservation | None,
    *,
    rules: RoutingRules,
    now: float,
    room: pod_charges.Room | None,
    unread: Collection[JobKey],
) -> tuple[Reservation | Entry | None, bool]:
    """Return the reservation or entry of one job, and whether it follows from the job's pods alone."""
    if job is not None and job.admission is not None and (occupying or not (job.finished or job.deleting)):
        return _reservation(job, job.admission, charge), False
    if occupying and charge is not None:
        return charge, False  # the pick of the job was charged, and stays charged until the last pod is gone
    leftover = (
        pod_charges.leftover_charge(key, job, occupying, rules, room, unread=key in unread) if occupying else None
    )
    if leftover is not None:
        return leftover, True
    if job is None or occupying or not waits(job, rules, now):
        return None, False
    is_picked = charge is not None and charge.attempt == job.attempt + 1
    return (charge if is_picked else route.entry(job, rules)), False


def waits(job: JobView, rules: RoutingRules, now: float) -> bool:
    """Return whether a job without a charge has its place in the order of a queue."""
    return job.competes and eligibility.of(job, rules, now).ordered


def _reservation(job: JobView, admission: Admission, charge: Reservation | None) -> Reservation:
    """Return the charge of an admission, or the charge of the old store if no worker has written its growth yet."""
    if charge is not None and held_charges.is_unwritten_growth(admission, charge):
        return charge
    return Reservation(
        key=job.key,
        queue=admission.queue,
        attempt=admission.attempt,
        epoch=admission.epoch,
        charge=admission.charge,
        pick=admission.pick,
        port=admission.port,
        size=admission.workers or 0,
        grown=admission.grown or 0,
        idle=admission.idle,
        nodes=charge.nodes if charge is not None and charge.attempt == admission.attempt else "",
    )
