"""The counts and measurements of this process, for the dashboards and alerts of admins.

One rule: a package names its metrics as values and counts through the protocol `Meter`. The meter knows no library and
no port.

The names follow the conventions of Prometheus: base units, `_total` for counters. Where another program has the same
metric, the name is that of client-go.
"""

from dataclasses import KW_ONLY, dataclass
from typing import Literal, Protocol

Merge = Literal["sum", "least", "most"]


@dataclass(frozen=True, slots=True, eq=False)
class Metric:
    """One metric. Each metric is a single object: two metrics are equal only if they are the same object."""

    name: str
    help: str
    """The sentence that /metrics and the documentation give for it."""
    _: KW_ONLY
    of: str
    """The processes that give it: `leader`, `coordinator`, `worker`, `recorder`, `dashboard`, `queueing` (coordinators
    and workers) or `each`."""
    labels: tuple[str, ...] = ()
    """The names of its labels. The values of each are a closed set, and never name a job, a pod or a message."""
    buckets: tuple[float, ...] = ()
    """The upper bounds of a histogram, without the infinite one."""
    merge: Merge = "sum"
    """How a supervisor makes one gauge of those of its processes."""

    @property
    def kind(self) -> Literal["counter", "gauge", "histogram"]:
        """The type of the metric, which its buckets or the end of its name show."""
        if self.buckets:
            return "histogram"
        return "counter" if self.name.endswith("_total") else "gauge"


class Meter(Protocol):
    """Counts and measures. Both methods are quick, and any thread may call them."""

    def count(self, metric: Metric, *labels: str, by: float = 1.0) -> None:
        """Raise a counter."""

    def observe(self, metric: Metric, value: float, *labels: str) -> None:
        """Add a value to a histogram."""


class _NoMeter:
    def count(self, metric: Metric, *labels: str, by: float = 1.0) -> None:
        """Count nothing."""

    def observe(self, metric: Metric, value: float, *labels: str) -> None:
        """Measure nothing."""


NO_METER: Meter = _NoMeter()
"""The meter of commands and tests that show no metrics."""

REQUEST_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""The bounds for requests and runs, in seconds."""
