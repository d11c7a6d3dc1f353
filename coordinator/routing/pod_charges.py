"""The charge for a pod whose labels name a TorchJob.

One rule: pure. The users of a namespace write the labels of their pods, and may name any TorchJob of theirs as owner.
So a pod counts for a queue only if no job and no reservation says what is charged, and only as far as the cluster
confirms it:

    the queue      a queue that its namespace may use
    the attempt    1 or higher; while its job exists, at most the job's `status.attempt`
    the amounts    what the pod itself requests, once it is on a node, and what that node offers
    the names      as many as a charge may have; the resources that limit the queue come first

If a pod is newer than the known version of its job, the job is read again. Until this read succeeds, the pod counts for
the job's own queue, if its namespace may use that queue. A pod that counts for no queue takes room in the pool, as a
pod without labels does.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from coordinator.cache.routing_rules import RoutingRules
from coordinator.cache.views import JobView, PodView
from coordinator.routing import eligibility
from crds import integers
from crds.keys import JobKey
from crds.resources import amounts
from crds.resources.amounts import JOBS, NOTHING, Amounts
from crds.torchjob import demand
from queues.values import Reservation

Room = dict[str, dict[str, int]]
"""By node, the amounts that no pod has claimed yet."""


def queue_of(pod: PodView, job: JobView | None) -> str:
    """Return the queue that a pod names, else the queue of its job, else the queue with the name of its namespace."""
    return pod.queue or (job.queue if job else pod.namespace)


def counts(pod: PodView, job: JobView | None, rules: RoutingRules) -> bool:
    """Return whether a pod counts for the queue that it names; `job` is at least as new as the pod."""
    is_known_attempt = pod.attempt >= 1 and (job is None or pod.attempt <= job.attempt)
    return is_known_attempt and eligibility.is_usable(queue_of(pod, job), pod.namespace, rules)


def is_newer(pod: PodView, job: JobView | None) -> bool:
    """Return whether a pod belongs to a later attempt than the known version of its job has, and is newer than this
    version."""
    return job is not None and pod.attempt > job.attempt and pod.version > integers.parse(job.version, 0)


def pods_for_pool(pods: Iterable[PodView], jobs: Mapping[JobKey, JobView], rules: RoutingRules) -> Iterable[PodView]:
    """Yield all pods as the pool sees them: a pod that counts for no queue becomes a foreign pod."""
    for pod in pods:
        job = jobs.get(pod.job) if pod.job is not None else None
        is_charged = pod.job is None or (job is not None and job.admission is not None)
        if is_charged or is_newer(pod, job) or counts(pod, job, rules):
            yield pod
        else:
            yield replace(pod, job=None, demand=pod.demand if pod.placed else NOTHING)


def leftover_charge(
    key: JobKey,
    job: JobView | None,
    pods: Iterable[PodView],
    rules: RoutingRules,
    room: Room | None,
    *,
    unread: bool = False,
) -> Reservation | None:
    """Return the charge for the pods of a job that does not exist or has no admission; None if nothing is charged.

    `room` is the room that nodes still offer, and is reduced by the charge; None if the nodes are not known. `unread`
    is whether the cluster may have a newer version of the job.
    """
    of_job = unread and job is not None and eligibility.is_usable(job.queue, key.namespace, rules)
    unknown = unread and job is None
    counted = [
        pod for pod in pods if (of_job and pod.attempt >= 1) or ((pod.placed or unknown) and counts(pod, job, rules))
    ]
    if not counted:
        return None
    newest = max(counted, key=lambda pod: (pod.attempt, queue_of(pod, job)))
    queue = job.queue if of_job and job is not None else queue_of(newest, job)
    charge = {JOBS: 1}
    for pod in counted:
        amounts.increase(charge, _claim(pod, room))
    storable = _limit_charge(charge, rules.ceilings.get(queue, NOTHING))
    return Reservation(key=key, queue=queue, attempt=newest.attempt, epoch=0, charge=storable)


def _claim(pod: PodView, room: Room | None) -> Amounts:
    """Take the requests of a pod from its node's room, or less if the node has less; return the amounts taken."""
    if room is None or not pod.placed:
        return pod.demand
    free = room.get(pod.node, {})
    claim = {name: min(amount, free.get(name, 0)) for name, amount in pod.demand.items()}
    for name, amount in claim.items():
        if amount:
            free[name] -= amount
    return {name: amount for name, amount in claim.items() if amount}


def _limit_charge(charge: Amounts, limit: Amounts) -> Amounts:
    """Return a charge that the store can keep: if it has too many names, the names that limit the queue are kept."""
    names = sorted(charge, key=lambda name: (name != JOBS, name not in limit, name))[: demand.MOST_NAMES]
    return {name: min(charge[name], demand.LARGEST) for name in names}
