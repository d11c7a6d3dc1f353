"""What a pod that is labelled as a TorchJob's is believed to be charged for.

One rule: pure. A namespace's users write their pods' labels and may own them by any TorchJob of theirs. So a pod counts
for a queue only where no job and no reservation says what is charged, and only as far as the cluster bears it out:

    the queue      one that its namespace may use
    the attempt    1 or higher; while its job exists, at most the job's `status.attempt`
    the amounts    what the pod itself requests, once it is on a node, and what that node offers
    the names      those that limit the queue first, as many as a charge may have

A pod may be newer than what is known of its job: that job is read again. Until it could be, the pod counts for the
job's own queue, if its namespace may use that. A pod that counts for no queue takes room in the pool, as one that is
not labelled does.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from coordinator.cache.routing_rules import Rules
from coordinator.cache.views import JobView, PodView
from coordinator.routing import eligibility
from crds import integers
from crds.keys import JobKey
from crds.resources import amounts
from crds.resources.amounts import JOBS, NOTHING, Amounts
from crds.torchjob import demand
from queues.values import Reservation

Room = dict[str, dict[str, int]]
"""What of each node's room no pod has claimed yet."""


def queue_of(pod: PodView, job: JobView | None) -> str:
    """The queue that a pod says is charged for it."""
    return pod.queue or (job.queue if job else pod.namespace)


def counts(pod: PodView, job: JobView | None, rules: Rules) -> bool:
    """Whether a pod counts for the queue that it names; `job` is as new as the pod."""
    attempted = pod.attempt >= 1 and (job is None or pod.attempt <= job.attempt)
    return attempted and eligibility.usable(queue_of(pod, job), pod.namespace, rules)


def newer(pod: PodView, job: JobView | None) -> bool:
    """Whether a pod is of an attempt that its job was not at when it was seen last, and is newer than that."""
    return job is not None and pod.attempt > job.attempt and pod.version > integers.bounded(job.version, 0)


def unlabelled(pods: Iterable[PodView], jobs: Mapping[JobKey, JobView], rules: Rules) -> Iterable[PodView]:
    """All pods as the pool sees them: those that count for no queue are nobody's."""
    for pod in pods:
        job = jobs.get(pod.job) if pod.job is not None else None
        covered = pod.job is None or (job is not None and job.admission is not None)
        if covered or newer(pod, job) or counts(pod, job, rules):
            yield pod
        else:
            yield replace(pod, job=None, demand=pod.demand if pod.placed else NOTHING)


def leftover(
    key: JobKey, job: JobView | None, pods: Iterable[PodView], rules: Rules, room: Room | None, *, unread: bool = False
) -> Reservation | None:
    """What the pods of a job that has vanished, or has lost its admission, are charged; None: nothing.

    `room` is what nodes offer, and is used up; None: nobody knows. `unread`: the job may be newer than it is known.
    """
    of_job = unread and job is not None and eligibility.usable(job.queue, key.namespace, rules)
    unknown = unread and job is None
    found = [
        pod for pod in pods if (of_job and pod.attempt >= 1) or ((pod.placed or unknown) and counts(pod, job, rules))
    ]
    if not found:
        return None
    newest = max(found, key=lambda pod: (pod.attempt, queue_of(pod, job)))
    queue = job.queue if of_job and job is not None else queue_of(newest, job)
    charge = {JOBS: 1}
    for pod in found:
        amounts.increase(charge, _taken(pod, room))
    kept = _bounded(charge, rules.ceilings.get(queue, NOTHING))
    return Reservation(key=key, queue=queue, attempt=newest.attempt, epoch=0, charge=kept)


def _taken(pod: PodView, room: Room | None) -> Amounts:
    """What a pod takes of its node; more than there is it cannot have."""
    if room is None or not pod.placed:
        return pod.demand
    left = room.get(pod.node, {})
    taken = {name: min(amount, left.get(name, 0)) for name, amount in pod.demand.items()}
    for name, amount in taken.items():
        if amount:
            left[name] -= amount
    return {name: amount for name, amount in taken.items() if amount}


def _bounded(charge: Amounts, limit: Amounts) -> Amounts:
    """A charge that the store can keep: of too many names those that limit the queue."""
    names = sorted(charge, key=lambda name: (name != JOBS, name not in limit, name))[: demand.MOST_NAMES]
    return {name: min(charge[name], demand.LARGEST) for name in names}
