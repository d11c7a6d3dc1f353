"""The state of the watches, converted for the store: for a rebuild, an audit, and the size of the pool.

One rule: an object that raises an unforeseen error is skipped and recorded; all others count.
"""

import logging
from collections.abc import Iterable, Mapping
from typing import TypeVar

from coordinator.cache.routing_rules import RoutingRules
from coordinator.cache.views import JobView
from coordinator.cache.watches import Watches
from coordinator.routing import held_charges, pod_charges, pool_capacity, queue_specs, rebuilt_state, revoke
from coordinator.routing.pool_capacity import PoolSetting
from coordinator.routing.rebuilt_state import RebuiltState
from crds.keys import JobKey
from crds.resources.amounts import Amounts
from kube.errors import ClusterError
from queues.errors import Unstorable
from queues.redis import codec
from queues.values import Entry, QueueSpec, Reservation

MOST_REREAD = 100
"""The most jobs that are read again for one rebuild. The number is bounded because users can make any number of pods
that seem newer than their jobs."""
log = logging.getLogger(__name__)
T = TypeVar("T", Entry, Reservation)


def compute(
    watches: Watches, charged: Mapping[JobKey, Reservation], rules: RoutingRules, now: float, *, read: bool = False
) -> RebuiltState:
    """Return the content that the store should have according to the watches.

    `charged` are the reservations that the store has now. With `read`, jobs that are older in the cache than one of
    their pods are read again.
    """
    jobs = {job.key: job for job in watches.jobs.values()}
    pods, nodes = watches.pods.values(), watches.nodes.values() if watches.nodes else None
    unread = _reread(watches, jobs, rebuilt_state.jobs_to_reread(jobs, pods, charged)) if read else frozenset()
    result = rebuilt_state.compute(jobs.values(), pods, charged, rules, now, nodes=nodes, unread=unread)
    for key, error in result.errors.items():
        watches.skip(key, error)
    return result


def _reread(watches: Watches, jobs: dict[JobKey, JobView], keys: list[JobKey]) -> frozenset[JobKey]:
    """Read these jobs into `jobs`; return the keys of those that could not be read."""
    for number, key in enumerate(keys[:MOST_REREAD]):
        try:
            newest = watches.read(key)
        except ClusterError as error:
            log.warning("jobs cannot be read again, so what their pods say is believed: %s", error)
            return frozenset(keys[number:])
        del jobs[key]
        if newest is not None:
            jobs[key] = newest
    return frozenset(keys[MOST_REREAD:])


def storable(watches: Watches, values: Iterable[T]) -> tuple[T, ...]:
    """Return the values that the store can keep; skip and record the others."""
    result: list[T] = []
    for value in values:
        try:
            codec.check(value)
        except Unstorable as error:
            watches.skip(value.key, error)
        else:
            result.append(value)
    return tuple(result)


def room(watches: Watches, setting: PoolSetting, rules: RoutingRules) -> Amounts | None:
    """Return the size of the pool; None if the pool has no limits."""
    nodes = watches.nodes.values() if watches.nodes else []
    if setting != "nodes" or not nodes:
        return pool_capacity.capacity(setting, nodes, ())
    jobs = {job.key: job for job in watches.jobs.values()}
    return pool_capacity.capacity(setting, nodes, pod_charges.pods_for_pool(watches.pods.values(), jobs, rules))


def specs(watches: Watches, *, implicit: bool) -> dict[str, QueueSpec]:
    """Return the queues that admins created and, if `implicit`, those that the namespaces of jobs imply."""
    queues = {queue.metadata.name: queue_specs.spec(queue) for queue in watches.queues.values()}
    for name in watches.implied_queues() if implicit else ():
        queues.setdefault(name, QueueSpec(name=name))
    return queues


def growths_without_pods(
    watches: Watches, charges: Iterable[Reservation], charged: Mapping[JobKey, Reservation]
) -> dict[JobKey, Reservation]:
    """Return by job what it would hold without its added workers that have no pods and that the store did not
    charge."""
    result = {}
    for charge in charges:
        job = watches.job(charge.key)
        is_grown = job is not None and charge.grown and not held_charges.is_charged_by(charge, charged.get(charge.key))
        if job is None or job.workers is None or not is_grown:
            continue
        occupying = held_charges.occupying_workers(charge.key, watches.job_pods(charge.key))
        smaller = held_charges.without_workers(charge, job.workers, occupying)
        if smaller.size < charge.size:
            result[charge.key] = smaller
    return result


def admissions_without_room(
    watches: Watches,
    charges: Iterable[Reservation],
    charged: Mapping[JobKey, Reservation],
    queues: Mapping[str, QueueSpec],
    room: Amounts | None,
) -> frozenset[JobKey]:
    """Return the admissions for which there is no room, which have no pods, and which the store did not charge."""
    charges = list(charges)
    firm = {pod.job for pod in watches.pods.values() if pod.job is not None}
    firm |= {
        charge.key for charge in charges if charge.key in charged and charged[charge.key].attempt == charge.attempt
    }
    return revoke.excess(charges, firm, queues, room)
