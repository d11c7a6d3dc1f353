"""The metrics that a worker process reports to its supervisor: its counts since its last report.

One rule: a supervisor adds up increments, so that a process that dies lowers no counter, and no event is counted twice.
"""

from collections.abc import Callable, Iterable
from typing import Any

from coordinator.metrics.catalogue import BY_NAME
from coordinator.metrics.registry import Cells, Labels, Registry, Sample
from kube.process.meter import Metric

ADDED, NOW, QUEUES, GONE = "added", "now", "queues", "gone"
"""The fields of a report: increments, gauges, all queues (once), and the queues that were deleted since."""
Row = list[Any]
"""A series in JSON: the name of the metric, the labels, the cells."""


class Increments:
    """The reports of one worker process. Only one thread may make increments."""

    def __init__(
        self, registry: Registry, queues: Callable[[], Iterable[str] | None] = lambda: None, *, implicit: bool = False
    ) -> None:
        """`queues` returns the names of all TenantQueues; None while they are not known. `implicit` says whether queues
        without an object may exist."""
        self._registry = registry
        self._queues = queues
        self._implicit = implicit
        self._told: dict[tuple[Metric, Labels], Cells] = {}
        self._known: frozenset[str] | None = None

    def report(self) -> dict[str, Any]:
        """Return the changes since the last report."""
        added, now = [], []
        series = {(metric, labels): cells for metric, rows in self._registry.collect().items()
                  for labels, cells in rows.items()}  # fmt: skip
        for (metric, labels), cells in series.items():
            if metric.kind == "gauge":
                now.append([metric.name, labels, cells])
            elif grown := _growth(self._told.get((metric, labels)), cells):
                added.append([metric.name, labels, grown])
        self._told = {key: cells for key, cells in series.items() if key[0].kind != "gauge"}
        return {ADDED: added, NOW: now} | self._tell_queues()

    def _tell_queues(self) -> dict[str, Any]:
        names = self._queues()
        if names is None:
            return {}
        before, self._known = self._known, frozenset(names)
        if before is None:
            return {} if self._implicit else {QUEUES: list(self._known)}
        gone = before - self._known
        return {GONE: list(gone)} if gone else {}


def add(registry: Registry, report: Any) -> None:
    """Add the increments in a report of a worker process. Increments that cannot be read are left out."""
    if not isinstance(report, dict):
        return
    for sample in parse_rows(report.get(ADDED)):
        registry.add(sample)
    if isinstance(names := report.get(QUEUES), list):
        registry.drop_queues(registry.queues.keep(_texts(names)))
    if isinstance(names := report.get(GONE), list):
        gone = _texts(names)
        registry.queues.forget(gone)
        registry.drop_queues(gone)


def gauges(report: Any) -> list[Sample]:
    """Return the gauges in a report of a worker process."""
    return list(parse_rows(report.get(NOW))) if isinstance(report, dict) else []


def parse_rows(rows: Any) -> Iterable[Sample]:
    """Yield the series in a report that have their metric's form."""
    for row in rows if isinstance(rows, list) else ():
        name, labels, cells = row
        metric = BY_NAME.get(name)
        if metric is not None and len(labels) == len(metric.labels):
            yield Sample(metric, tuple(labels), tuple(cells))


def _growth(before: Cells | None, cells: Cells) -> Cells:
    """Return by how much a series has grown; empty if it has not. A series that shrank has begun again from 0."""
    if before is None or any(new < old for new, old in zip(cells, before, strict=True)):
        return cells
    grown = tuple(new - old for new, old in zip(cells, before, strict=True))
    return grown if any(grown) else ()


def _texts(names: list[Any]) -> frozenset[str]:
    return frozenset(name for name in names if isinstance(name, str))
