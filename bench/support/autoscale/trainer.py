"""An elastic job that trains: its workers, its work, and the time that a change of size costs the job.

One rule: the trainer moves only when a caller names the time.
"""

from dataclasses import dataclass

from bench.support.autoscale.scenario import LEAST, MOST, WANTED
from crds.keys import JobKey
from queues.resizing.values import ElasticJob
from queues.values import Entry

START_SECONDS = 10.0
"""The time until a new worker's process runs."""
STOP_SECONDS = 12.0
"""The time in which all workers stand still at a change. Both are the longest that `bench elastic` has measured, which
saw no step lost: a job saves a checkpoint when it is asked to, before a change."""
GRACE_SECONDS = 30.0
"""The time until the workers are gone that leave."""
REST_SECONDS = 300.0
PATIENCE = 5
"""A job whose growth took R seconds grows only into room that was idle for 5 R."""


@dataclass(slots=True)
class Trainer:
    """A running elastic job."""

    entry: Entry
    """What it asked for when it was submitted."""
    work: float
    """The seconds of workers that it still needs."""
    workers: int
    """The workers that it is charged for."""
    at: float
    """The time up to which `work` is counted."""
    running: int = 0
    idle: int = 0
    leaving: int = 0
    leaving_for: str | None = None
    stopped_until: float = 0.0
    ready_at: float = 0.0
    """When the workers run that were added last."""
    resting_until: float = 0.0
    has_grown: bool = False
    growths: int = 0
    version: int = 0
    """It rises with each change of the end."""
    lost: float = 0.0
    """The seconds of workers that changes have cost."""
    trained: float = 0.0
    asks: Entry | None = None
    """The growth to what its owner wants, while it waits."""

    @property
    def key(self) -> JobKey:
        return self.entry.key

    @property
    def ends_at(self) -> float:
        """Return when the work is done if nothing changes."""
        return max(self.at, self.stopped_until) + self.work / self.running

    def advance(self, now: float) -> None:
        """Count the work up to a time."""
        done = self.running * max(0.0, now - max(self.at, self.stopped_until))
        self.work -= done
        self.trained += done
        self.at = now

    def run(self, workers: int, now: float) -> None:
        """Go on with another number of workers. All stand still for a time."""
        self.advance(now)
        self.running = workers
        until = now + STOP_SECONDS
        self.lost += workers * max(0.0, until - max(now, self.stopped_until))
        self.stopped_until = max(self.stopped_until, until)
        self.version += 1

    def value(self, now: float, idle_seconds: float) -> ElasticJob:
        """Return the job as a plan sees it."""
        took = START_SECONDS + STOP_SECONDS if self.has_grown else 0.0
        return ElasticJob(
            key=self.key,
            queue=self.entry.queue,
            workers=self.workers,
            least=LEAST,
            wanted=WANTED,
            most=MOST,
            unit=self.entry.unit,
            idle=self.idle,
            autoscale=True,
            submitted=self.entry.submitted,
            busy="Scaling" if self.leaving or self.ready_at > now else "",
            resting_until=self.resting_until,
            idle_seconds=max(idle_seconds, PATIENCE * took),
            leaving=self.leaving,
            leaving_for=self.leaving_for,
        )
