"""The metrics of a recorder: what it writes, how far it is behind, and whether its database answers."""

from collections.abc import Iterable

from coordinator.metrics.registry import Sample, number
from kube.process.meter import Metric

ROWS = Metric("torchq_history_rows_total", "Rows of the history that a recorder has added or changed.", of="recorder")
BEHIND = Metric(
    "torchq_history_behind_seconds",
    "The age of the newest time up to which all that happened in the cluster is in the database.",
    of="recorder",
)
DATABASE_UP = Metric(
    "torchq_history_database_up",
    "1 while the database of the history answers the recorder and takes its rows, else 0.",
    of="recorder",
)
METRICS = (ROWS, BEHIND, DATABASE_UP)


def samples(*, behind: float, is_up: bool) -> Iterable[Sample]:
    """Yield the gauges of a recorder."""
    yield number(BEHIND, behind)
    yield number(DATABASE_UP, is_up)
