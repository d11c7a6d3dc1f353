"""What a TenantQueue's status says: how many wait, how many are admitted, what they use.

One rule: derived from what the coordinator watches, written where the cluster says otherwise, and never on the way of a
pick.
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
from queues.limits import STANDARD_RESOURCES, counted_resources
from queues.redis.log_throttle import Outage

EVERY = 1.0
"""Seconds between two looks: fresh enough for people, one write per queue and second at most."""
AT_MOST = 5
"""Writes per look; queues take turns, so that many whose figures never rest do not cost more than the jobs in them."""
MOST_NAMES = 64
"""Resources that the usage of a status may name (TenantQueueStatus.usage); the API server refuses more."""
NEVER = 2**63
"""A version that no watch reaches."""
ALL = "the status of the queues"
log = logging.getLogger(__name__)

Status = dict[str, Any]
REFUSED_SECONDS = 30.0
"""How long nothing is written after the API server has refused for want of a permission."""
ABSENT = (errors.Unreachable, errors.ServerError, errors.TooManyRequests)
"""Errors after which the next queue would fare no better."""


@dataclass(frozen=True, slots=True)
class Written:
    """A status we wrote and the version it made."""

    status: Status
    version: int


def statuses(
    queues: Collection[TenantQueue],
    jobs: Iterable[JobView],
    cost: str = JOBS,
    errors: ObjectErrors | None = None,
    offered: Iterable[str] = (),
) -> dict[str, Status]:
    """Each queue's status by name. `share` is what the queue has of all that is admitted, counted as picks are (`jobs`
    or a resource); `target` its weight among the queues with work. A job that cannot be counted is noted in `errors`.

    `usage` names resources of quotas, the standard ones (`queues.limits`) and those that are `offered`.
    """
    names = counted_resources(map(queue_specs.spec, queues), None, (cost, *offered))
    pending: Counter[str] = Counter()
    admitted: Counter[str] = Counter()
    usage: dict[str, dict[str, int]] = {}
    for job in jobs:
        if job.admission is not None and not job.finished:
            try:
                used = usage.setdefault(job.admission.queue, {})
                charge = amounts.only(job.admission.charge, names)
                used.update({name: used.get(name, 0) + amount for name, amount in charge.items()})
                admitted[job.admission.queue] += 1
            except Exception as error:
                if errors is not None:
                    errors.met(f"the charge of TorchJob {job.key.namespace}/{job.key.name}", error)
        elif not (job.finished or job.suspended or job.invalid):
            pending[job.queue] += 1
    limits = [(queue.metadata.name, queue.spec.weight, queue.spec.quota_amounts) for queue in queues]
    costs = {name: amount.get(cost, 0) for name, amount in usage.items()}
    everything = sum(costs.values())
    busy = sum(weight for name, weight, _ in limits if pending[name] or admitted[name])
    return {
        name: {
            "pending": pending[name],
            "admitted": admitted[name],
            "usage": figures.format_amounts(_most_wanted(usage.get(name, {}), (*quota, cost))),
            "share": figures.percent(costs.get(name, 0), everything),
            "target": figures.percent(weight, busy) if pending[name] or admitted[name] else "0%",
        }
        for name, weight, quota in limits
    }


def _most_wanted(usage: Amounts, limited: Collection[str]) -> Amounts:
    """As many names as a status may have: the limited ones first, then the standard ones."""
    ranked = sorted(usage, key=lambda name: (name not in limited, name not in STANDARD_RESOURCES, name))
    return {name: usage[name] for name in ranked[:MOST_NAMES]}


@dataclass(slots=True)
class QueueStatusWriter:
    """Writes what the cluster does not say yet."""

    cluster: Cluster
    watches: Watches
    cost: str = JOBS
    """What a pick costs its queue."""
    pool: Collection[str] = ()
    """Names of the resources in a pool that is set as amounts."""
    clock: Callable[[], float] = time.monotonic
    _written: dict[str, Written] = field(default_factory=dict)
    _tried: dict[str, int] = field(default_factory=dict)
    """The number of each queue's last attempt: whose is longest ago comes first."""
    _numbers: Iterator[int] = field(default_factory=lambda: count(1))
    _refused: Outage = field(default_factory=lambda: Outage(log))
    _silent_until: float = 0.0

    def run(self, stop: threading.Event, leading: Callable[[], bool]) -> None:
        """Write while leading, until stopped."""
        while not stop.wait(EVERY):
            if leading() and self.watches.synced:
                try:
                    self.write(stop)
                except Exception as error:
                    self.watches.errors.met(ALL, error)
                else:
                    self.watches.errors.over(ALL)

    def write(self, stop: threading.Event | None = None) -> None:
        """One look at every queue. What the API server does not take now is written at one of the next looks."""
        if self.clock() < self._silent_until:
            return
        queues = {queue.metadata.name: queue for queue in self.watches.queues.values()}
        found = statuses(queues.values(), self.watches.jobs.values(), self.cost, self.watches.errors, self._offered())
        self._tried = {name: number for name, number in self._tried.items() if name in found}
        untold = [
            name for name in found if found[name] != _said(queues[name]) and not self._under_way(name, found[name])
        ]
        for name in sorted(untold, key=lambda name: self._tried.get(name, 0))[:AT_MOST]:
            if stop is not None and stop.is_set():
                return
            wanted = found[name]
            self._tried[name] = next(self._numbers)
            try:
                self._write(queues[name], wanted)
                self._refused.over()
            except errors.Forbidden as error:
                self._refused.met(error)
                self._silent_until = self.clock() + REFUSED_SECONDS
                return
            except ABSENT as error:
                log.debug("status of the queues: %s", error)
                return
            except errors.Invalid as error:
                log.warning("the status of queue %s cannot be written: %s", name, error)
                self._written[name] = Written(wanted, NEVER)  # not this one again
            except errors.ClusterError as error:
                log.debug("status of queue %s: %s", name, error)
            except Exception as error:
                self.watches.errors.met(f"the status of TenantQueue {name}", error)

    def _offered(self) -> set[str]:
        """The names of the resources of the pool."""
        nodes = self.watches.nodes.values() if self.watches.nodes else []
        return {*self.pool, *(name for node in nodes for name in node.allocatable)}

    def _under_way(self, name: str, wanted: Status) -> bool:
        """Whether it is written and only the watch has not shown it yet."""
        written = self._written.get(name)
        return (
            written is not None and written.status == wanted and written.version > self.watches.queues.resource_version
        )

    def _write(self, queue: TenantQueue, wanted: Status) -> None:
        # A merge patch keeps what it does not name: amounts that are gone have to be named as null.
        gone = dict.fromkeys(queue.status.usage.keys() - wanted["usage"].keys())
        patch = {"status": wanted | {"usage": wanted["usage"] | gone}}
        name = queue.metadata.name
        stored = self.cluster.patch(TENANT_QUEUES, name, patch, subresource="status")
        version = stored["metadata"]["resourceVersion"]
        self._written[name] = Written(wanted, integers.bounded(version, 0))


def _said(queue: TenantQueue) -> Status:
    """What the cluster says of a queue, as the watch has shown it."""
    said = queue.status
    return {
        "pending": said.pending,
        "admitted": said.admitted,
        "usage": dict(said.usage),
        "share": said.share,
        "target": said.target,
    }
