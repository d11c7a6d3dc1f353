"""The statuses of TenantQueues: the numbers of waiting and admitted jobs, and what the admitted jobs use.

One rule: a status is computed from the watches alone, and written if the cluster shows another status. A write never
delays a pick.
"""

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from coordinator.cache.views import JobView
from coordinator.cache.watches import Watches
from coordinator.query import figures
from coordinator.routing import queue_specs
from crds import integers
from crds.api_resources import TENANT_QUEUES
from crds.resources import amounts
from crds.resources.amounts import JOBS, Amounts
from crds.tenantqueue import TenantQueue
from kube import errors
from kube.api import Cluster
from kube.object_errors import ObjectErrors
from kube.process.turns import Turns
from queues.limits import STANDARD_RESOURCES, usage_resources
from queues.redis.log_throttle import OutageLog

INTERVAL_SECONDS = 1.0
"""The seconds between two rounds of writes, and so between two writes of one queue's status."""
MOST_WRITES = 5
"""The most writes per round. Queues take turns, so that many queues that change constantly cost fewer writes than their
jobs do."""
MOST_NAMES = 64
"""The most resources that the usage of a status may name (TenantQueueStatus.usage); the API server refuses more."""
NEVER = 2**63
"""A resourceVersion that no watch ever reaches."""
ALL = "the status of the queues"
log = logging.getLogger(__name__)

Status = dict[str, Any]
REFUSED_SECONDS = 30.0
"""How long nothing is written after the API server has refused a write because a permission is missing."""
UNAVAILABLE_ERRORS = (errors.Unreachable, errors.ServerError, errors.TooManyRequests)
"""The errors of an unavailable API server, after which no other write is tried in this round."""


@dataclass(frozen=True, slots=True)
class WrittenStatus:
    """A status that this process wrote, and the resourceVersion of that write."""

    status: Status
    version: int


def statuses(
    queues: Collection[TenantQueue],
    jobs: Iterable[JobView],
    cost: str = JOBS,
    errors: ObjectErrors | None = None,
    offered: Iterable[str] = (),
) -> dict[str, Status]:
    """Return the status of each queue by name.

    `share` is the queue's part of all admitted jobs, measured by `cost`, which is `jobs` or a resource. `target` is its
    part of the weights of all queues with work. `usage` names the resources of quotas, the standard ones
    (`queues.limits`) and those that are `offered`. A job that cannot be counted is recorded in `errors`.
    """
    names = usage_resources(map(queue_specs.spec, queues), None, (cost, *offered))
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
    costs = {name: amount.get(cost, 0) for name, amount in usage.items()}
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
    """Return as many resources as a status may name: limited ones first, then standard ones."""
    ranked = sorted(usage, key=lambda name: (name not in limited, name not in STANDARD_RESOURCES, name))
    return {name: usage[name] for name in ranked[:MOST_NAMES]}


@dataclass(slots=True)
class QueueStatusWriter:
    """Writes the statuses that differ from those in the cluster."""

    cluster: Cluster
    watches: Watches
    cost: str = JOBS
    """What a pick costs its queue."""
    pool: Collection[str] = ()
    """Names of the resources in a pool that is set as amounts."""
    clock: Callable[[], float] = time.monotonic
    _written: dict[str, WrittenStatus] = field(default_factory=dict)
    _tried: dict[str, int] = field(default_factory=dict)
    """The number of the last attempt for each queue. The queue with the oldest attempt is written first."""
    _numbers: Iterator[int] = field(default_factory=lambda: count(1))
    _refused: OutageLog = field(default_factory=lambda: OutageLog(log))
    _silent_until: float = 0.0

    def run(self, stop: threading.Event, leading: Callable[[], bool], turns: Turns) -> None:
        """Write statuses while this process leads, until stopped, as one of the loops in `turns`."""
        for _ in turns.loop("queue-status").rounds(stop, INTERVAL_SECONDS):
            if leading() and self.watches.synced:
                try:
                    self.write(stop)
                except Exception as error:
                    self.watches.errors.record(ALL, error)
                else:
                    self.watches.errors.clear(ALL)

    def write(self, stop: threading.Event | None = None) -> None:
        """Write the changed statuses of a few queues. A write that fails is tried again in a later round."""
        if self.clock() < self._silent_until:
            return
        queues = {queue.metadata.name: queue for queue in self.watches.queues.values()}
        current = statuses(
            queues.values(), self.watches.jobs.values(), self.cost, self.watches.errors, self._pool_resources()
        )
        self._tried = {name: number for name, number in self._tried.items() if name in current}
        outdated = [
            name
            for name, status in current.items()
            if status != _shown_status(queues[name]) and not self._is_under_way(name, status)
        ]
        for name in sorted(outdated, key=lambda name: self._tried.get(name, 0))[:MOST_WRITES]:
            if stop is not None and stop.is_set():
                return
            status = current[name]
            self._tried[name] = next(self._numbers)
            try:
                self._write(queues[name], status)
                self._refused.report_recovery()
            except errors.Forbidden as error:
                self._refused.report_failure(error)
                self._silent_until = self.clock() + REFUSED_SECONDS
                return
            except UNAVAILABLE_ERRORS as error:
                log.debug("status of the queues: %s", error)
                return
            except errors.Invalid as error:
                log.warning("the status of queue %s cannot be written: %s", name, error)
                self._written[name] = WrittenStatus(status, NEVER)  # this status is not written again
            except errors.ClusterError as error:
                log.debug("status of queue %s: %s", name, error)
            except Exception as error:
                self.watches.errors.record(f"the status of TenantQueue {name}", error)

    def _pool_resources(self) -> set[str]:
        """Return the names of the resources of the pool."""
        nodes = self.watches.nodes.values() if self.watches.nodes else []
        return {*self.pool, *(name for node in nodes for name in node.allocatable)}

    def _is_under_way(self, name: str, status: Status) -> bool:
        """Return whether the status has been written and the watch has not shown it yet."""
        written = self._written.get(name)
        return (
            written is not None and written.status == status and written.version > self.watches.queues.resource_version
        )

    def _write(self, queue: TenantQueue, status: Status) -> None:
        # A merge patch keeps what it does not name, so a resource that is no longer used is set to null.
        unused = dict.fromkeys(queue.status.usage.keys() - status["usage"].keys())
        patch = {"status": status | {"usage": status["usage"] | unused}}
        name = queue.metadata.name
        stored = self.cluster.patch(TENANT_QUEUES, name, patch, subresource="status")
        version = stored["metadata"]["resourceVersion"]
        self._written[name] = WrittenStatus(status, integers.parse(version, 0))


def _shown_status(queue: TenantQueue) -> Status:
    """Return the status that the cluster shows for a queue, as the watch has read it."""
    status = queue.status
    return {
        "pending": status.pending,
        "admitted": status.admitted,
        "usage": dict(status.usage),
        "share": status.share,
        "target": status.target,
    }
