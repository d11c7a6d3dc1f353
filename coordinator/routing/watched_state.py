"""What the watches show, counted: for a rebuild, an audit, and the size of the pool.

One rule: an object about which there is an unforeseen error is left out and noted; all others are counted.
"""

import logging
from collections.abc import Iterable, Mapping
from typing import TypeVar

from coordinator.cache.routing_rules import Rules
from coordinator.cache.views import JobView
from coordinator.cache.watches import Watches
from coordinator.routing import pod_charges, pool_capacity, queue_specs, rebuilt_state, revoke
from coordinator.routing.pool_capacity import PoolSetting
from coordinator.routing.rebuilt_state import Census
from crds.keys import JobKey
from crds.resources.amounts import Amounts
from kube.errors import ClusterError
from queues.errors import Unstorable
from queues.redis import codec
from queues.values import Entry, QueueSpec, Reservation

READ_AGAIN = 100
"""Jobs that are read again for one rebuild: users can make any number of pods that seem newer than their jobs."""
log = logging.getLogger(__name__)
T = TypeVar("T", Entry, Reservation)


def take(
    watches: Watches, held: Mapping[JobKey, Reservation], rules: Rules, now: float, *, read: bool = False
) -> Census:
    """The census of what is watched. `read`: jobs are read again where their pods are newer than they are here."""
    jobs = {job.key: job for job in watches.jobs.values()}
    pods, nodes = watches.pods.values(), watches.nodes.values() if watches.nodes else None
    unread = _read_again(watches, jobs, rebuilt_state.newer(jobs, pods, held)) if read else frozenset()
    found = rebuilt_state.take(jobs.values(), pods, held, rules, now, nodes=nodes, unread=unread)
    for key, error in found.errors.items():
        watches.skip(key, error)
    return found


def _read_again(watches: Watches, jobs: dict[JobKey, JobView], keys: list[JobKey]) -> frozenset[JobKey]:
    """Bring these jobs up to date; the keys of those that could not be read."""
    for number, key in enumerate(keys[:READ_AGAIN]):
        try:
            newest = watches.read(key)
        except ClusterError as error:
            log.warning("jobs cannot be read again, so what their pods say is believed: %s", error)
            return frozenset(keys[number:])
        del jobs[key]
        if newest is not None:
            jobs[key] = newest
    return frozenset(keys[READ_AGAIN:])


def storable(watches: Watches, values: Iterable[T]) -> tuple[T, ...]:
    """Those that the store can keep; the others are noted."""
    kept: list[T] = []
    for each in values:
        try:
            codec.check(each)
        except Unstorable as error:
            watches.skip(each.key, error)
        else:
            kept.append(each)
    return tuple(kept)


def room(watches: Watches, setting: PoolSetting, rules: Rules) -> Amounts | None:
    """The size of the pool."""
    nodes = watches.nodes.values() if watches.nodes else []
    if setting != "nodes" or not nodes:
        return pool_capacity.capacity(setting, nodes, ())
    jobs = {job.key: job for job in watches.jobs.values()}
    return pool_capacity.capacity(setting, nodes, pod_charges.unlabelled(watches.pods.values(), jobs, rules))


def specs(watches: Watches, *, implicit: bool) -> dict[str, QueueSpec]:
    """The queues that admins made; `implicit`: and those that the namespaces of jobs imply."""
    queues = {queue.metadata.name: queue_specs.spec(queue) for queue in watches.queues.values()}
    for name in watches.implied_queues() if implicit else ():
        queues.setdefault(name, QueueSpec(name=name))
    return queues


def without_room(
    watches: Watches,
    charged: Iterable[Reservation],
    held: Mapping[JobKey, Reservation],
    queues: Mapping[str, QueueSpec],
    room: Amounts | None,
) -> frozenset[JobKey]:
    """The admissions for which there is no room, of which no pod was made, and which the store did not charge."""
    found = list(charged)
    firm = {pod.job for pod in watches.pods.values() if pod.job is not None}
    firm |= {each.key for each in found if each.key in held and held[each.key].attempt == each.attempt}
    return revoke.excess(found, firm, queues, room)
