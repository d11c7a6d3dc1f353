"""The statuses of TenantQueues: the numbers of waiting and admitted jobs, and the usage of the admitted jobs.

One rule: a status is computed from the watches alone, and put if the cluster shows another status.
"""

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

from coordinator.cache.views import JobView
from coordinator.cache.watches import Watches
from coordinator.health.rounds import Rounds
from coordinator.leader.status_writer import Lane, QueueKey
from coordinator.query import figures
from coordinator.routing import pool_capacity, queue_specs
from coordinator.routing.pool_capacity import PoolSetting
from crds.resources import amounts
from crds.resources.amounts import Amounts
from crds.tenantqueue import TenantQueue
from kube.object_errors import ObjectErrors
from queues import rules
from queues.limits import STANDARD_RESOURCES, usage_resources
from queues.picking.prices import Prices
from queues.rules import DOMINANT

MOST_NAMES = 64
"""The most resources that the usage of a status may name (TenantQueueStatus.usage); the API server refuses more."""
Status = dict[str, Any]


def statuses(
    queues: Collection[TenantQueue],
    jobs: Iterable[JobView],
    cost: str = DOMINANT,
    errors: ObjectErrors | None = None,
    pool: Amounts | None = None,
) -> dict[str, Status]:
    """Return the status of each queue by name.

    `share` is the queue's part of the usage of all admitted jobs, measured by `cost`, which is the price of a pick
    (`queues.rules`). `target` is its part of the weights of all queues with work. `usage` names the resources of
    quotas and of the `pool`, and the standard ones (`queues.limits`). A job that cannot be counted is recorded in
    `errors`.
    """
    specs = [queue_specs.spec(queue) for queue in queues]
    names, prices = usage_resources(specs, pool, rules.counted(cost)), Prices(cost, pool, specs)
    pending: Counter[str] = Counter()
    admitted: Counter[str] = Counter()
    usage: dict[str, dict[str, int]] = {}
    for job in jobs:
        if job.admission is not None and not job.finished:
            try:
                used = usage.setdefault(job.admission.queue, {})
                charge = amounts.select(job.admission.charge, names)
                used.update({name: used.get(name, 0) + amount for name, amount in charge.items()})
                admitted[job.admission.queue] += 1
            except Exception as error:
                if errors is not None:
                    errors.record(f"the charge of TorchJob {job.key.namespace}/{job.key.name}", error)
        elif not (job.finished or job.stopped or job.invalid):
            pending[job.queue] += 1
    limits = [(queue.metadata.name, queue.spec.weight, queue.spec.quota_amounts) for queue in queues]
    costs = {name: prices.used(amount) for name, amount in usage.items()}
    everything = sum(costs.values())
    busy_weight = sum(weight for name, weight, _ in limits if pending[name] or admitted[name])
    return {
        name: {
            "pending": pending[name],
            "admitted": admitted[name],
            "usage": figures.format_amounts(_most_important(usage.get(name, {}), (*quota, cost))),
            "share": figures.percent(costs.get(name, 0), everything),
            "target": figures.percent(weight, busy_weight) if pending[name] or admitted[name] else "0%",
        }
        for name, weight, quota in limits
    }


def _most_important(usage: Amounts, limited: Collection[str]) -> Amounts:
    """Return the resources that a status may name: limited ones first, then standard ones."""
    ranked = sorted(usage, key=lambda name: (name not in limited, name not in STANDARD_RESOURCES, name))
    return {name: usage[name] for name in ranked[:MOST_NAMES]}


@dataclass(slots=True)
class QueueStatuses(Rounds):
    """Puts the statuses that differ from those in the cluster."""

    loop, subject, seconds = "queue-status", "the status of the queues", 1.0
    lane: Lane[QueueKey]
    watches: Watches
    cost: str = DOMINANT
    """What a pick costs its queue."""
    pool: PoolSetting = None

    def look(self) -> None:
        """Put the changed statuses of queues."""
        queues = {queue.metadata.name: queue for queue in self.watches.queues.values()}
        # The room of foreign pods counts as well: to leave those pods out takes a look at every pod, and shares hardly
        # differ.
        nodes = self.watches.nodes.values() if self.watches.nodes else []
        room = pool_capacity.capacity(self.pool, nodes, ())
        current = statuses(queues.values(), self.watches.jobs.values(), self.cost, self.watches.errors, room)
        for name, status in current.items():
            shown, key = queues[name].status.model_dump(), QueueKey(name)
            # A merge patch keeps fields that it does not name, so a resource that is no longer used is set to null.
            unused = dict.fromkeys(shown["usage"].keys() - status["usage"].keys())
            fields = status | {"usage": status["usage"] | unused}
            if status == shown or self.lane.is_under_way(key, fields):
                self.lane.discard(key)
            else:
                self.lane.put(key, fields)
