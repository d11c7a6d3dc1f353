"""The store of reports in memory, for tests: the twin of `coordinator.reports.report_store`.

One rule: this store does everything that the scripts do, so that a test of this store is a test of both.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable

from coordinator.reports.report_store import KEPT_SECONDS
from coordinator.reports.report_values import ArrivedReport, JobReports, PodReport, Report
from crds.keys import JobKey


class MemoryReports:
    """A ReportStore. `clock` takes the place of the server's time."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._jobs: defaultdict[JobKey, dict[str, PodReport]] = defaultdict(dict)
        self._expire: dict[JobKey, float] = {}

    def keep(self, arrived: Iterable[ArrivedReport]) -> None:
        """See ReportStore."""
        now = self._clock()
        for each in arrived:
            pods = self._jobs[each.job] if self._is_kept(each.job) else self._forget(each.job)
            pods[each.report.pod] = _merge(pods.get(each.report.pod), each.report, now - each.age)
            self._expire[each.job] = now + KEPT_SECONDS

    def read(self, keys: Iterable[JobKey]) -> dict[JobKey, JobReports]:
        """See ReportReader."""
        kept = [key for key in keys if self._is_kept(key)]
        return {key: JobReports(read_at=self._clock(), pods=dict(self._jobs[key])) for key in kept}

    def lose(self) -> None:
        """Delete everything, as a Redis that was flushed."""
        self._jobs.clear()
        self._expire.clear()

    def _is_kept(self, key: JobKey) -> bool:
        return self._expire.get(key, 0.0) > self._clock()

    def _forget(self, key: JobKey) -> dict[str, PodReport]:
        self._jobs[key] = {}
        return self._jobs[key]


def _merge(before: PodReport | None, report: Report, at: float) -> PodReport:
    moved, rate, checkpoint = at, None, report.checkpoint or 0
    step = report.step if report.step is not None else _missing_step(report, before)
    if before is not None:
        at = max(at, before.at)
        moved, checkpoint = at, max(checkpoint, before.checkpoint or 0)
        if step == before.step:
            moved, rate = at if _has_moved(report, before) else before.moved_at, before.steps_per_second
        elif step > before.step and at > before.moved_at:
            rate = float(f"{(step - before.step) / (at - before.moved_at):.6g}")
    return PodReport(
        step=step,
        at=at,
        moved_at=moved,
        steps_per_second=rate,
        samples_per_second=report.samples_per_second,
        loss=report.loss,
        gauges=dict(report.gauges),
        checkpoint=checkpoint or None,
        progress=report.progress,
        run=report.run,
    )


def _missing_step(report: Report, before: PodReport | None) -> int:
    if before is None:
        return 0
    is_at_end = report.progress is not None and report.progress.percent == 100
    steps = before.progress.steps if before.progress is not None and is_at_end else None
    return max(before.step, steps or 0)


def _has_moved(report: Report, before: PodReport) -> bool:
    percent = report.progress.percent if report.progress is not None else None
    return percent is not None and percent != (before.progress and before.progress.percent)
