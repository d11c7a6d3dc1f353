"""The counts and measurements of this process since its start, and the present values of its parts.

One rule: a count takes no lock except the short one of the registry, and a collection waits for nothing.

The multiprocess mode of prometheus_client would replace this registry and `increments`, but it cannot drop a series:
`remove` leaves the numbers in its files, so that each queue that was ever deleted would stay on the page. The
multiprocess mode also needs a folder that all processes write, and a process of torchq has none.
"""

import threading
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from typing import NamedTuple

from coordinator.metrics.queue_names import QueueNames
from kube.process.meter import Metric

QUEUE = "queue"
"""The label whose values are the names of queues. It is the first one of its metrics."""

Labels = tuple[str, ...]
Cells = tuple[float, ...]
"""The values of one series: one number; of a histogram the count of each bucket, of what is beyond, and the sum."""


class Sample(NamedTuple):
    """One series at one moment."""

    metric: Metric
    labels: Labels
    cells: Cells

    def is_of(self, queues: Set[str]) -> bool:
        """Return whether a series belongs to one of the given queues."""
        return self.metric.labels[:1] == (QUEUE,) and self.labels[0] in queues


Source = Callable[[], Iterable[Sample]]
"""A function that returns what a part of the process knows: gauges, and counters that it keeps itself."""


def number(metric: Metric, value: float, *labels: str) -> Sample:
    """Return a series of one number: a gauge, or a counter that a part of the process keeps itself."""
    return Sample(metric, labels, (float(value),))


class Registry:
    """The metrics of one process; safe to share between threads. The registry is a `kube.process.meter.Meter`."""

    def __init__(self, queues: QueueNames) -> None:
        self.queues = queues
        self.news = threading.Event()
        """Set when something about jobs was counted, for a supervisor that should hear of it soon."""
        self._lock = threading.Lock()
        self._series: dict[tuple[Metric, Labels], list[float]] = {}
        self._sources: list[Source] = []

    def count(self, metric: Metric, *labels: str, by: float = 1.0) -> None:
        """Raise a counter."""
        key = self._key(metric, labels)
        with self._lock:
            cells = self._series.get(key)
            if cells is None:
                self._series[key] = [by]
            else:
                cells[0] += by

    def observe(self, metric: Metric, value: float, *labels: str) -> None:
        """Add a value to a histogram."""
        key = self._key(metric, labels)
        with self._lock:
            cells = self._series.get(key)
            if cells is None:
                cells = self._series[key] = [0.0] * (len(metric.buckets) + 2)
            cells[bisect_left(metric.buckets, value)] += 1.0
            cells[-1] += value

    def add(self, sample: Sample) -> None:
        """Add what another process has counted or measured."""
        key = self._key(sample.metric, sample.labels)
        with self._lock:
            cells = self._series.setdefault(key, [0.0] * len(sample.cells))
            for index, amount in enumerate(sample.cells):
                cells[index] += amount

    def add_source(self, source: Source) -> None:
        """Let a part of the process provide its gauges at each collection."""
        self._sources.append(source)

    def collect(self) -> Mapping[Metric, Mapping[Labels, Cells]]:
        """Return all series. The series of queues that were deleted are dropped first."""
        self.drop_queues(self.queues.forget_deleted())
        found: dict[Metric, dict[Labels, Cells]] = {}
        for sample in self._samples():
            series = found.setdefault(sample.metric, {})
            before = series.get(sample.labels)
            series[sample.labels] = sample.cells if before is None else _merge(sample.metric, before, sample.cells)
        return found

    def drop_queues(self, names: frozenset[str]) -> None:
        """Drop the series of some queues."""
        if not names:
            return
        with self._lock:
            self._series = {
                (metric, labels): cells
                for (metric, labels), cells in self._series.items()
                if not (metric.labels[:1] == (QUEUE,) and labels[0] in names)
            }

    def _samples(self) -> Iterator[Sample]:
        with self._lock:
            counted = [(metric, labels, tuple(cells)) for (metric, labels), cells in self._series.items()]
        yield from (Sample(*each) for each in counted)
        for source in self._sources:
            yield from source()

    def _key(self, metric: Metric, labels: Labels) -> tuple[Metric, Labels]:
        if metric.labels[:1] == (QUEUE,):
            self.news.set()
            labels = (self.queues.label(labels[0]), *labels[1:])
        return metric, labels


def _merge(metric: Metric, before: Cells, cells: Cells) -> Cells:
    match metric.merge:
        case "least":
            return tuple(map(min, before, cells))
        case "most":
            return tuple(map(max, before, cells))
    return tuple(first + second for first, second in zip(before, cells, strict=True))
