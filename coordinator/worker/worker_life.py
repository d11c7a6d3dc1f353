"""The signs of life of one worker process, and the metrics that it reads off its parts.

One rule: a Redis or an API server that is away fails no check of a worker that has once begun its work. Every number is
in memory; a part that does not exist yet has no numbers.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from coordinator.life.health_checks import Check
from coordinator.life.process_checks import cache_check, loop_checks
from coordinator.metrics import process_metrics, process_page
from coordinator.metrics.registry import Sample, number
from coordinator.worker.caches import WorkerCaches
from kube.informer import Informer
from kube.process.turns import Turns
from queues import metrics as queue_metrics
from queues.dispatch.intake import Intake
from reconcilers.views.queue_view import QueueView


@dataclass(slots=True)
class WorkerLife:
    """The checks of one worker process, from before its caches are read."""

    turns: Turns = field(default_factory=Turns)
    """The loops of the process."""
    caches: WorkerCaches | None = None
    """The caches; None before the process has them."""
    intake: Intake | None = None
    """What the process knows of its batches; None before it asks for them."""

    def healthz(self) -> list[Check]:
        """Return a check of each loop."""
        return loop_checks(self.turns)

    def readyz(self) -> list[Check]:
        """Return whether the process takes batches, and what it lacks if it takes no batches."""
        informers = self.caches.informers if self.caches is not None else ()
        caches, intake = [*map(cache_check, informers)], self.intake
        if intake is None:
            return [*caches, Check("registration", "the caches are not read yet")]
        missing = "" if intake.registered else intake.outage or "the worker has not registered yet"
        return [
            *caches,
            Check("registration", missing, note=intake.outage),
            Check("batches", intake.refusal),
            Check("shutdown", "the process is stopping" if intake.stopping else ""),
        ]


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
