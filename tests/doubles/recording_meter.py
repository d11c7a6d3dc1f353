"""A meter that keeps what it is told.

One rule: the names of metrics and labels, without their values in time.
"""

from collections import Counter

from kube.process.meter import Metric


class RecordingMeter:
    """Counts by the name of a metric and its labels, and how often each histogram was given a value."""

    def __init__(self) -> None:
        self.counts: Counter[tuple[str, ...]] = Counter()
        self.observed: Counter[tuple[str, ...]] = Counter()

    def count(self, metric: Metric, *labels: str, by: float = 1.0) -> None:
        """Raise a counter."""
        assert (metric.kind, len(labels)) == ("counter", len(metric.labels))
        self.counts[metric.name, *labels] += int(by)

    def observe(self, metric: Metric, value: float, *labels: str) -> None:
        """Note that a histogram was given a value."""
        assert (metric.kind, len(labels)) == ("histogram", len(metric.labels))
        assert value >= 0
        self.observed[metric.name, *labels] += 1
