"""Reports on their way into the store: they wait for a moment, and travel together.

One rule: no request waits for Redis. A batch that cannot be written is dropped; the next reports replace the dropped
reports.

A pod reports once in `LEAST_INTERVAL`. Two reports are taken at any time in addition, and do not begin that time anew:
the report that answers an open request to save, once for each request, because the change of the job waits for it; and
the last report of a training process, once in that time, because none comes after it.
"""

import logging
import math
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from coordinator.reports.report_store import ReportStore
from coordinator.reports.report_values import ArrivedReport, Report
from crds.keys import JobKey
from kube.process.turns import Turns
from queues.errors import QueueError

BATCH_SECONDS = 1.0
"""The interval between two batches."""
LEAST_INTERVAL = 4.5
"""The least time between two reports of a pod. Clients wait for 5 s; a report may travel faster than the last one."""
ANSWERED_SECONDS = 86_400.0
"""How long it is known which request a pod has answered: longer than a request is open."""
_Source = tuple[JobKey, str]
"""A job and the name of a pod."""
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Taken:
    """When a pod has reported, and whether its last report was taken in addition."""

    at: float
    with_last: bool = False


class ReportBatches:
    """Takes reports at any time, and writes them in batches; safe to share between threads."""

    def __init__(
        self,
        store: ReportStore,
        on_saved: Callable[[Mapping[JobKey, int]], object] = lambda _: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`on_saved` is called with the jobs whose pods have answered a request to save, and its number, once the
        answer can be read."""
        self._store = store
        self._on_saved = on_saved
        self._clock = clock
        self._lock = threading.Lock()
        self._waiting: dict[_Source, tuple[Report, float]] = {}
        """The reports of the next batch, each with the time of its arrival."""
        self._taken: OrderedDict[_Source, _Taken] = OrderedDict()
        """The pods that have reported last, oldest first."""
        self._answered: OrderedDict[_Source, tuple[int, float]] = OrderedDict()
        """The pods that have answered a request to save last, oldest first: the number of the newest one, and when."""
        self._failing = ""

    def take(self, job: JobKey, report: Report, save_request: int = 0) -> int:
        """Take a report. Return the seconds for which the pod has to wait if it has reported too recently, else 0.

        `save_request` is the number of the job's open request to save; 0 if there is no open request.
        """
        now, source = self._clock(), (job, report.pod)
        with self._lock:
            self._forget(now)
            answered, _ = self._answered.get(source, (0, 0.0))
            is_answer = answered < save_request <= (report.checkpoint or 0)
            taken = self._taken.get(source)
            if taken is None:
                self._taken[source] = _Taken(now)
            elif report.last and not taken.with_last:
                self._taken[source] = replace(taken, with_last=True)
            elif not is_answer:
                return math.ceil(taken.at + LEAST_INTERVAL - now)
            if is_answer:
                self._answered[source] = save_request, now
                self._answered.move_to_end(source)
            self._put(source, report, now)
        return 0

    def _forget(self, now: float) -> None:
        while self._taken and next(iter(self._taken.values())).at + LEAST_INTERVAL <= now:
            self._taken.popitem(last=False)
        while self._answered and next(iter(self._answered.values()))[1] + ANSWERED_SECONDS <= now:
            self._answered.popitem(last=False)

    def _put(self, source: _Source, report: Report, now: float) -> None:
        """Let a report wait for the next batch. A waiting answer to a request to save stays in the report, and so does
        a waiting step if the report says none."""
        before, _ = self._waiting.get(source, (report, now))
        if report.step is None:
            report = replace(report, step=before.step)
        if (before.checkpoint or 0) > (report.checkpoint or 0):
            report = replace(report, checkpoint=before.checkpoint)
        self._waiting[source] = report, now

    def run(self, stop: threading.Event, turns: Turns) -> None:
        """Write a batch again and again until stopped, as one of the loops in `turns`, and a last batch at the end."""
        for _ in turns.loop("reports").rounds(stop, BATCH_SECONDS):
            self.write()
        self.write()

    def write(self) -> None:
        """Write the reports that have come since the last batch."""
        with self._lock:
            waiting, self._waiting = self._waiting, {}
        if not waiting:
            return
        now = self._clock()
        batch = [
            ArrivedReport(job=job, report=report, age=now - arrived) for (job, _), (report, arrived) in waiting.items()
        ]
        try:
            self._store.keep(batch)
            if saved := _saved(batch):
                self._on_saved(saved)
        except QueueError as error:
            self._note(str(error))
        else:
            self._note("")

    def _note(self, failing: str) -> None:
        """Log a problem once, and its end once."""
        if failing and not self._failing:
            log.warning("reports are lost: %s", failing)
        elif self._failing and not failing:
            log.info("reports are kept again")
        self._failing = failing


def _saved(batch: Iterable[ArrivedReport]) -> dict[JobKey, int]:
    """Return the highest number of a request to save that the reports of a job answer, for the jobs with such
    reports."""
    numbers: dict[JobKey, int] = {}
    for each in batch:
        if each.report.checkpoint is not None:
            numbers[each.job] = max(each.report.checkpoint, numbers.get(each.job, 0))
    return numbers
