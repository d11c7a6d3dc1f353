"""Whether workers that were added have made the other workers slower (`minGainPercent`), by the reports of training
code.

One rule: all of this state may be lost at any moment. A job is then judged again after its next growth.

The samples per second of each pod are averaged, at the size before a growth and at the size after it. Reports are
used once a size is SETTLE_SECONDS old and has been looked at LOOKS times. A job whose average has fallen by more than
its owner allows returns to its previous size, and keeps this size until pods of the job are restarted.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from coordinator.cache.autoscaling import Autoscaling
from coordinator.cache.views import JobView
from coordinator.reports.report_values import JobReports
from crds.keys import JobKey

SETTLE_SECONDS = 30.0
"""How long after a resize the first reports count."""
FRESH_SECONDS = 60.0
"""How old a report may be."""
LOOKS = 3

Run = tuple[int, int]
"""The attempt of a job, and how often its pods were restarted in it."""


class SmallGain(NamedTuple):
    """A growth that made a job slower."""

    run: Run
    workers: int
    """The size before the growth."""
    message: str


@dataclass(frozen=True, slots=True)
class _Size:
    """A size of a job, and how fast its pods are at it."""

    run: Run
    workers: int
    rate: float | None = None
    """The average of the samples per second of one pod; None: not known."""
    looks: int = 0
    before: "_Size | None" = None
    """The size before the last growth; None after it was judged."""


@dataclass(slots=True)
class Gains:
    """The sizes of the jobs that are judged."""

    small: Mapping[JobKey, SmallGain] = field(default_factory=dict)
    _sizes: dict[JobKey, _Size] = field(default_factory=dict)

    def look(self, jobs: Mapping[JobKey, JobView], reports: Mapping[JobKey, JobReports]) -> None:
        """Judge these jobs by their newest reports, and forget all other jobs."""
        small = {key: gain for key, gain in self.small.items() if key in jobs}
        self._sizes = {key: size for key, size in self._sizes.items() if key in jobs}
        for key, job in jobs.items():
            scaling = job.autoscaling
            if scaling is None or job.admission is None or scaling.change or job.phase != "Running":
                continue
            run = (job.admission.attempt, scaling.restarts)
            size = self._sizes[key] = self._next(key, job.admission.workers or 0, run, scaling, reports.get(key))
            if key in small and small[key].run != run:
                del small[key]
            if size.before is not None and size.looks >= LOOKS:
                self._sizes[key] = replace(size, before=None)
                if (gain := _judge(size, size.before, scaling.least_gain)) is not None:
                    small[key] = gain
        self.small = small

    def _next(self, key: JobKey, workers: int, run: Run, scaling: Autoscaling, reports: JobReports | None) -> _Size:
        """Return the size of a job with the speed of its newest reports."""
        size = self._sizes.get(key)
        if size is None or size.run != run:
            size = _Size(run, workers)
        elif size.workers != workers:
            is_growth = workers > size.workers and scaling.idle > 0 and size.rate is not None
            size = _Size(run, workers, before=replace(size, before=None) if is_growth else None)
        rate = None if reports is None else pod_rate(reports, scaling.resized_at + SETTLE_SECONDS)
        if rate is None:
            return size
        return replace(size, rate=rate if size.rate is None else (size.rate + rate) / 2, looks=size.looks + 1)


def pod_rate(reports: JobReports, since: float) -> float | None:
    """Return the average of the samples per second of the pods that have reported of late, and since a time; None if
    no pod has."""
    oldest = max(since, reports.read_at - FRESH_SECONDS)
    rates = [
        report.samples_per_second
        for report in reports.pods.values()
        if isinstance(report.samples_per_second, int | float) and report.at >= oldest
    ]
    return sum(rates) / len(rates) if rates else None


def _judge(size: _Size, before: _Size, least_gain: int) -> SmallGain | None:
    """Return the growth between two sizes if it made a job slower than its owner allows."""
    if not before.rate or size.rate is None:
        return None
    loss = 100 * (1 - size.rate / before.rate)
    if loss <= least_gain:
        return None
    message = f"samples per second and worker fell by {loss:.0f} % from {before.workers} to {size.workers} workers"
    return SmallGain(size.run, before.workers, message)
