"""The metrics that a worker process reads off its parts, and the queues that it knows.

One rule: every number is in memory; a part that does not exist yet has no numbers.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from coordinator.metrics import process_metrics, process_page
from coordinator.metrics.registry import Sample, number
from coordinator.worker.worker_life import WorkerLife
from kube.informer import Informer
from queues import metrics as queue_metrics
from reconcilers.views.queue_view import QueueView


@dataclass(frozen=True, slots=True)
class WorkerSource:
    """The state that one worker process knows."""

    life: WorkerLife
    implicit_queues: bool
    """Whether there are queues without a TenantQueue."""
    _explicit: set[str] = field(default_factory=set)
    """Names of which there was a TenantQueue when they were last counted."""

    def samples(self) -> Iterator[Sample]:
        """Yield whether Redis answers, for how long reconciles have run, and how often watches began again."""
        intake, caches = self.life.intake, self.life.caches
        if intake is not None:
            yield number(process_metrics.REDIS_UP, intake.registered and not intake.outage)
            yield number(queue_metrics.CLOCK_WRONG, bool(intake.clock_problem))
            yield number(queue_metrics.UNFINISHED_SECONDS, intake.unfinished_seconds(), queue_metrics.WORK_QUEUE)
        if caches is not None:
            yield from process_page.restarts(caches.all_informers)

    def exists(self, queue: str) -> bool | None:
        """Return whether there is a queue of this name; None if that is not known."""
        queues = self._queues
        if queues is None:
            return None
        if queues.get("", queue) is not None:
            self._explicit.add(queue)
            return True
        return None if self.implicit_queues and queue not in self._explicit else False

    def names(self) -> list[str] | None:
        """Return the names of all TenantQueues; None if they are not known."""
        queues = self._queues
        return None if queues is None else [queue.name for queue in queues.values()]

    @property
    def _queues(self) -> Informer[QueueView] | None:
        caches = self.life.caches
        return caches.queues if caches is not None and caches.queues.synced else None
