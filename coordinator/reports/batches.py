"""Reports on their way into the store: they wait for a moment, and travel together.

One rule: nobody waits for Redis. A batch that cannot be written is dropped; the next reports take its place.
"""

import logging
import math
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from coordinator.reports.store import ReportStore
from coordinator.reports.values import ArrivedReport, Report
from crds.keys import JobKey
from kube.process.turns import Turns
from queues.errors import QueueError

BATCH_SECONDS = 1.0
"""The interval between two batches."""
LEAST_INTERVAL = 5.0
"""The least time between two reports of a pod."""
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Waiting:
    """A report and the time of its arrival."""

    report: Report
    arrived: float


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
        self._waiting: dict[tuple[JobKey, str], _Waiting] = {}
        self._taken: OrderedDict[tuple[JobKey, str], float] = OrderedDict()
        """The pods that have reported last, and when, oldest first."""
        self._failing = ""

    def take(self, job: JobKey, report: Report) -> int:
        """Take a report. Return the seconds for which the pod has to wait if it has reported too recently, else 0."""
        now, source = self._clock(), (job, report.pod)
        with self._lock:
            while self._taken and next(iter(self._taken.values())) + LEAST_INTERVAL <= now:
                self._taken.popitem(last=False)
            if source in self._taken:
                return math.ceil(self._taken[source] + LEAST_INTERVAL - now)
            self._taken[source] = now
            self._waiting[source] = _Waiting(report, now)
        return 0

    def run(self, stop: threading.Event, turns: Turns) -> None:
        """Write a batch again and again until stopped, as one of the loops in `turns`, and the last one then."""
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
            ArrivedReport(job=job, report=each.report, age=now - each.arrived) for (job, _), each in waiting.items()
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
    """Return the highest number of a request to save that the reports of a job answer, for the jobs with any."""
    numbers: dict[JobKey, int] = {}
    for each in batch:
        if each.report.checkpoint is not None:
            numbers[each.job] = max(each.report.checkpoint, numbers.get(each.job, 0))
    return numbers
