"""What the cluster says of every job, as the store should hold it after a loss or a change of leader.

One rule: pure. The cluster is the truth; what the old store held counts only for a job whose admission no worker has
written yet, and for pods of which no job says what they are charged for.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial

from coordinator.cache.routing_rules import Rules
from coordinator.cache.views import JobView, NodeView, PodView
from coordinator.routing import eligibility, pod_charges, route
from crds.keys import JobKey
from queues.values import Entry, Reservation


@dataclass(frozen=True, slots=True)
class Census:
    """The content of a rebuilt store."""

    reservations: tuple[Reservation, ...]
    entries: tuple[Entry, ...]
    leftovers: frozenset[JobKey] = frozenset()
    """The keys that are charged by the word of pods alone."""
    errors: Mapping[JobKey, Exception] = field(default_factory=dict)
    """Jobs about which there was an unforeseen error. They are in no other list."""


def take(
    jobs: Iterable[JobView],
    pods: Iterable[PodView],
    held: Mapping[JobKey, Reservation],
    rules: Rules,
    now: float,
    *,
    nodes: Iterable[NodeView] | None = None,
    unread: Collection[JobKey] = (),
) -> Census:
    """Charge every admitted job and every occupying pod; all other jobs that may wait, wait.

    `nodes` bound what pods take; None: they are not known. `unread` are the jobs that may be newer than they are here.
    """
    by_key = {job.key: job for job in jobs}
    room = None if nodes is None else {node.name: dict(node.allocatable) for node in nodes}
    take_one = partial(_taken, rules=rules, now=now, room=room, unread=unread)
    found: dict[JobKey, Reservation | Entry] = {}
    leftovers, errors = set(), {}
    occupying = _occupying(pods)
    for key in [*by_key, *sorted(occupying.keys() - by_key.keys())]:
        try:
            one, left = take_one(key, by_key.get(key), occupying.get(key, []), held.get(key))
        except Exception as error:
            errors[key] = error
            continue
        if one is not None:
            found[key] = one
        if left:
            leftovers.add(key)
    charged = tuple(each for each in found.values() if isinstance(each, Reservation))
    entries = tuple(each for each in found.values() if isinstance(each, Entry))
    return Census(charged, entries, frozenset(leftovers), errors)


def _occupying(pods: Iterable[PodView]) -> dict[JobKey, list[PodView]]:
    found: dict[JobKey, list[PodView]] = {}
    for pod in pods:
        if pod.job is not None and pod.occupies:
            found.setdefault(pod.job, []).append(pod)
    return found


def newer(jobs: Mapping[JobKey, JobView], pods: Iterable[PodView], held: Mapping[JobKey, Reservation]) -> list[JobKey]:
    """The jobs to be read again before what their pods say is judged."""
    found = {
        pod.job: None
        for pod in pods
        if pod.job is not None and pod.occupies and pod.job not in held and pod_charges.newer(pod, jobs.get(pod.job))
    }
    return list(found)


def _taken(
    key: JobKey,
    job: JobView | None,
    occupying: list[PodView],
    held: Reservation | None,
    *,
    rules: Rules,
    now: float,
    room: pod_charges.Room | None,
    unread: Collection[JobKey],
) -> tuple[Reservation | Entry | None, bool]:
    """What one job has in the store, and whether pods alone say so."""
    if job is not None and job.admission is not None and (occupying or not (job.finished or job.deleting)):
        return _admitted(job), False
    if occupying and held is not None:
        return held, False  # it was charged for the job's own pick, and stays until the last pod has gone
    left = pod_charges.leftover(key, job, occupying, rules, room, unread=key in unread) if occupying else None
    if left is not None:
        return left, True
    if job is None or occupying or not waits(job, rules, now):
        return None, False
    picked = held is not None and held.attempt == job.attempt + 1
    return (held if picked else route.entry(job, rules)), False


def waits(job: JobView, rules: Rules, now: float) -> bool:
    """Whether a job without a charge has its place in a queue."""
    over = job.finished or job.deleting or job.suspended or job.invalid or job.admission is not None
    return not over and eligibility.of(job, rules, now).ordered


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
