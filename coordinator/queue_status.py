"""What a TenantQueue's status says: how many wait, how many are admitted, what they use.

One rule: derived from what the coordinator watches, written only when it changed, and never on the way of a pick.
"""

import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from cluster import errors
from cluster.api import Cluster
from coordinator.views import JobView
from coordinator.watch import Watches
from crds import amounts, quantities
from crds.amounts import Amounts
from crds.resources import TENANT_QUEUES
from crds.tenantqueue import TenantQueue

EVERY = 1.0
"""Seconds between two looks: fresh enough for people, one write per queue and second at most."""
log = logging.getLogger(__name__)

Status = dict[str, Any]


def statuses(queues: Iterable[TenantQueue], jobs: Iterable[JobView]) -> dict[str, Status]:
    """Each queue's status by name. `share` is what the queue has of all admitted jobs, `target` its weight among the
    queues with work."""
    pending: Counter[str] = Counter()
    admitted: Counter[str] = Counter()
    usage: dict[str, Amounts] = {}
    for job in jobs:
        if job.admission is not None and not job.finished:
            admitted[job.admission.queue] += 1
            usage[job.admission.queue] = amounts.add(usage.get(job.admission.queue, {}), job.admission.charge)
        elif not (job.finished or job.suspended or job.invalid):
            pending[job.queue] += 1
    weights = {queue.metadata.name: queue.spec.weight for queue in queues}
    busy = sum(weight for name, weight in weights.items() if pending[name] or admitted[name])
    return {
        name: {
            "pending": pending[name],
            "admitted": admitted[name],
            "usage": {
                resource: quantities.text(resource, amount) for resource, amount in sorted(usage.get(name, {}).items())
            },
            "share": _percent(admitted[name], admitted.total()),
            "target": _percent(weight, busy) if pending[name] or admitted[name] else "0%",
        }
        for name, weight in weights.items()
    }


def _percent(part: int, whole: int) -> str:
    return f"{100 * part // whole if whole else 0}%"


@dataclass(slots=True)
class QueueStatusWriter:
    """Writes what changed since it last wrote."""

    cluster: Cluster
    watches: Watches
    _written: dict[str, Status] = field(default_factory=dict)

    def run(self, stop: threading.Event, leading: Callable[[], bool]) -> None:
        """Write while leading, until stopped."""
        while not stop.wait(EVERY):
            if leading() and self.watches.synced:
                self.write()

    def write(self) -> None:
        """One look at every queue."""
        for name, wanted in statuses(self.watches.queues.values(), self.watches.jobs.values()).items():
            before = self._written.get(name)
            if wanted != before:
                self._write(name, wanted, before or {"usage": {}})

    def _write(self, name: str, wanted: Status, before: Status) -> None:
        # A merge patch keeps what it does not name: amounts that are gone have to be named as null.
        gone = dict.fromkeys(before["usage"].keys() - wanted["usage"].keys())
        try:
            patch = {"status": wanted | {"usage": wanted["usage"] | gone}}
            self.cluster.patch(TENANT_QUEUES, name, patch, subresource="status")
            self._written[name] = wanted
        except errors.ClusterError as error:
            log.debug("status of queue %s: %s", name, error)
