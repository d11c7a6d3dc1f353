"""The leader's gauges: the state of the queues, the workers and the waiting jobs, read repeatedly.

One rule: a page never waits for Redis, and no pick waits for a reading. A thread and a connection of their own read, at
a small share of a core.
"""

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from coordinator.cache.views import JobView
from coordinator.metrics import leader_metrics, queue_gauges
from coordinator.metrics.queue_names import QueueNames
from coordinator.metrics.registry import Sample, number
from crds.resources.amounts import Amounts
from kube.process.turns import Turn, Turns
from queues import metrics as queue_metrics
from queues.errors import QueueError
from queues.storage.stats import QueueStats
from queues.values import Snapshot

INTERVAL_SECONDS = 1.0
"""The least pause between two readings while pages are asked for."""
UNASKED_SECONDS = 5.0
"""The least pause between two readings while no page is asked for."""
ASKED_SECONDS = 120.0
"""How long a page counts as asked for: longer than the pause between two scrapes of any Prometheus server."""
REST = 120.0
"""The pause after a reading, as a multiple of the CPU time that it took: readings take 0.8 % of a core at most."""
OUTSIDE_THE_ORDER = frozenset(
    {
        "ClaimsNotCounted",
        "CountingClaims",
        "BackingOff",
        "NamespaceQuota",
        "NotAllowed",
        "Parked",
        "PortTaken",
        "PriorityClassNotFound",
        "QueueNotFound",
        "WaitingForGangQueue",
        "WaitingForScheduler",
    }
)
"""The codes in the status of jobs without a place in the order of a queue."""
log = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True)
class QueueGaugeReader:
    """The reading of one coordinator. The reader shows nothing while the coordinator does not lead."""

    snapshot: Callable[[], Snapshot]
    stats: Callable[[], QueueStats]
    jobs: Callable[[], Iterable[JobView]]
    policies: Callable[[], Mapping[str, str]]
    leading: Callable[[], bool]
    cost: str
    queues: QueueNames
    fragments: Callable[[], Amounts] = dict
    """A function that returns what is free on nodes in fragments, where it is known."""
    clock: Callable[[], float] = time.time
    cpu_clock: Callable[[], float] = time.thread_time
    _samples: tuple[Sample, ...] = field(default=())
    _asked_at: float = 0.0
    """When a page was asked for last."""
    _explicit: frozenset[str] = frozenset()
    """The queues of the last reading that had a TenantQueue."""
    _said: bool = False
    """Whether the log says that there are more queues than series."""

    def samples(self) -> tuple[Sample, ...]:
        """Return the gauges of the last reading, without the gauges of queues that were deleted since. Return none
        while this process does not lead.
        """
        self._asked_at = self.clock()
        if not self.leading():
            return ()
        gone = self._explicit - self.policies().keys()
        return tuple(each for each in self._samples if not each.is_of(gone)) if gone else self._samples

    def run(self, stop: threading.Event, _leading: Callable[[], bool], turns: Turns) -> None:
        """Read while this process leads, until stopped, as one of the loops in `turns`."""
        turn, pause = turns.loop("metrics"), INTERVAL_SECONDS
        with turn:
            while not _wait(turn, stop, pause):
                pause = self.read()

    def read(self) -> float:
        """Read once, and return the pause before the next reading. Outside a term, forget the gauges."""
        began = self.cpu_clock()
        if not self.leading():
            self._samples = ()
            return self._pause
        try:
            self._samples = tuple(self._read())
        except QueueError as error:  # another loop reports it; the last figures would be outdated
            log.debug("metrics: %s", error)
            self._samples = ()
        return max(self._pause, REST * (self.cpu_clock() - began))

    @property
    def _pause(self) -> float:
        is_asked = abs(self.clock() - self._asked_at) < ASKED_SECONDS
        return INTERVAL_SECONDS if is_asked else UNASKED_SECONDS

    def _read(self) -> Iterator[Sample]:
        snapshot, stats = self.snapshot(), self.stats()
        self.queues.keep(frozenset(view.spec.name for view in snapshot.queues))
        is_bounded = len(snapshot.queues) > self.queues.most
        if is_bounded and not self._said:
            log.warning(
                "%d of %d queues have metrics of their own; see metrics_queues", self.queues.most, len(snapshot.queues)
            )
        self._said = is_bounded
        policies, label = self.policies(), self.queues.label
        self._explicit = frozenset(policies)
        yield from queue_gauges.samples(snapshot, self.clock(), self.cost, policies, label)
        yield from queue_gauges.fragments(self.fragments())
        yield from queue_gauges.waiting(map(_describe, filter(_is_waiting, self.jobs())), self._label_known)
        yield number(queue_metrics.WORK_DEPTH, stats.ready, queue_metrics.WORK_QUEUE)
        members = Counter((each.version, str(each.layout)) for each in stats.members if not each.clock)
        yield from (number(leader_metrics.WORKERS, count, *labels) for labels, count in members.items())
        if not members:
            yield number(leader_metrics.WORKERS, 0, "", "")

    def _label_known(self, queue: str) -> str:
        """Return the label of a queue that a job names, which need not exist."""
        return queue if queue in self.queues else ""


def _wait(turn: Turn, stop: threading.Event, seconds: float) -> bool:
    turn.allow(seconds)
    stopped = stop.wait(seconds)
    turn.mark()
    return stopped


def _is_waiting(job: JobView) -> bool:
    return job.admission is None and not (job.finished or job.deleting or job.stopped)


def _describe(job: JobView) -> tuple[str, str, bool]:
    reason = "Held" if job.held else job.reason
    return job.queue, reason, not (job.held or reason in OUTSIDE_THE_ORDER)
