"""The queues that exist without a TenantQueue, because competing jobs name them.

One rule: only a job that holds room, or that could be picked without an edit by its owner, makes a queue.
"""

import threading
from collections.abc import Iterable

from coordinator.cache.routing_rules import is_implied
from coordinator.cache.views import JobView


class ImpliedQueues:
    """The names of the implied queues; safe to share between threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._names: set[str] = set()
        self._enabled = True

    def __len__(self) -> int:
        return len(self._names)

    def add(self, job: JobView) -> bool:
        """Record the queue that a job makes; return whether that queue is new."""
        name = _implied_queue(job)
        with self._lock:
            is_new = self._enabled and bool(name) and name not in self._names
            if is_new:
                self._names.add(name)
        return is_new

    def recount(self, jobs: Iterable[JobView]) -> frozenset[str]:
        """Return the queues that these jobs make, and forget all others."""
        names = {name for job in jobs if (name := _implied_queue(job))}
        with self._lock:
            self._names = names
        return frozenset(names)

    def disable(self) -> None:
        """Ignore all implied queues from now on: only TenantQueues are queues."""
        with self._lock:
            self._enabled = False
            self._names.clear()


def _implied_queue(job: JobView) -> str:
    """Return the queue that a job makes where queues are implicit; empty if it makes none.

    A waiting job makes the queue that it names, if its namespace implies that queue. A job that holds room makes the
    queue that it is charged to, whatever its name is.
    """
    if not _competes(job):
        return ""
    if job.admission is not None:
        return job.admission.queue
    return job.queue if is_implied(job.queue, job.key.namespace) else ""


def _competes(job: JobView) -> bool:
    """Return whether a job holds room, or could be picked without an edit by its owner."""
    if job.finished or job.deleting or job.invalid:
        return False
    return job.admission is not None or not (job.held or job.stopped or (job.waits and job.waits.parked))
