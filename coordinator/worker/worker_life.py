"""The signs of life of one worker process.

One rule: a Redis or an API server that is away fails no check of a worker that has once begun its work.
"""

from dataclasses import dataclass, field

from coordinator.life.health_checks import Check
from coordinator.life.process_checks import cache_check, loop_checks
from coordinator.worker.caches import WorkerCaches
from kube.process.turns import Turns
from queues.dispatch.intake import Intake


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
