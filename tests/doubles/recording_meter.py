"""A meter that records its calls.

One rule: it records the names of metrics and labels, but no time series of values.
"""

from collections import Counter

from kube.process.meter import Metric


class RecordingMeter:
    """Counts calls by the name of a metric and its labels: counts of counters, and how often each histogram got a
    value.
    """

    def __init__(self) -> None:
        self.counts: Counter[tuple[str, ...]] = Counter()
        self.observed: Counter[tuple[str, ...]] = Counter()

    def count(self, metric: Metric, *labels: str, by: float = 1.0) -> None:
        """Raise a counter."""
        assert (metric.kind, len(labels)) == ("counter", len(metric.labels))
        self.counts[metric.name, *labels] += int(by)

    def observe(self, metric: Metric, value: float, *labels: str) -> None:
        """Record that a histogram got a value."""
        assert (metric.kind, len(labels)) == ("histogram", len(metric.labels))
        assert value >= 0
        self.observed[metric.name, *labels] += 1
