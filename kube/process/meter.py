"""The counts and measurements of this process, for the dashboards and alerts of admins.

One rule: a package names its metrics as values and counts through the protocol `Meter`. The meter knows no library and
no port.

The names follow the conventions of Prometheus: base units, `_total` for counters. Where another program has the same
metric, the name is that of client-go.
"""

from dataclasses import dataclass
from typing import Literal, Protocol

Kind = Literal["counter", "gauge", "histogram"]
Merge = Literal["sum", "least", "most"]


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Metric:
    """One metric. Each metric is a single object: two metrics are equal only if they are the same object."""

    name: str
    kind: Kind
    help: str
    """The sentence that /metrics and the documentation give for it."""
    labels: tuple[str, ...] = ()
    """The names of its labels. The values of each are a closed set, and never name a job, a pod or a message."""
    buckets: tuple[float, ...] = ()
    """The upper bounds of a histogram, without the infinite one."""
    of: str
    """The processes that give it: `leader`, `coordinator`, `worker`, `recorder`, `dashboard`, `queueing` (coordinators
    and workers) or `each`."""
    merge: Merge = "sum"
    """How a supervisor makes one gauge of those of its processes."""


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
