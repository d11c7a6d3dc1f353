"""The admitted jobs whose number of workers the coordinator may change by itself.

One rule: other jobs cost nothing here, neither memory nor time.
"""

import threading
from collections.abc import Iterable

from coordinator.cache.autoscaling import Autoscaling
from coordinator.cache.views import JobView
from crds.keys import JobKey
from crds.resources import amounts
from crds.resources.amounts import Amounts


class AutoscaledJobs:
    """The unfinished jobs that have an `Autoscaling` and hold room, or that have a target all the same; safe to note in
    one thread and to read in another."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._jobs: dict[JobKey, JobView] = {}
        self.version = 0
        """A number that rises with every change of one of these jobs."""

    def note(self, before: JobView | None, after: JobView | None) -> None:
        """Record a change of a job."""
        if not ((before is not None and _counts(before)) or (after is not None and _counts(after))):
            return
        with self._lock:
            self.version += 1
            if before is not None:
                self._jobs.pop(before.key, None)
            if after is not None and _counts(after):
                self._jobs[after.key] = after

    def values(self) -> list[JobView]:
        """Return these jobs."""
        with self._lock:
            return list(self._jobs.values())

    def __len__(self) -> int:
        return len(self._jobs)


def of(job: JobView) -> Autoscaling | None:
    """Return what the coordinator needs to decide about the number of workers of a job; None if it never does."""
    return job.workers.autoscaling if job.workers is not None else None


def _counts(job: JobView) -> bool:
    scaling = of(job)
    holds = job.admission is not None or (scaling is not None and scaling.target is not None)
    return scaling is not None and holds and not job.finished


def idle_usage(jobs: Iterable[JobView]) -> dict[str, Amounts]:
    """Return by queue what the idle growth of jobs uses."""
    usage: dict[str, dict[str, int]] = {}
    for job in jobs:
        scaling = of(job)
        if job.workers is not None and job.admission is not None and scaling is not None and scaling.idle:
            taken = amounts.scale(job.workers.share, scaling.idle)
            amounts.increase(usage.setdefault(job.admission.queue, {}), taken)
    return dict(usage)
