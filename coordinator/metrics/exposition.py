"""The text of /metrics, in the format of Prometheus, and the figures of the operating system about this process.

One rule: no other module imports prometheus_client.
"""

import itertools
from collections.abc import Iterable, Iterator, Mapping

from prometheus_client import ProcessCollector, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector, CollectorRegistry
from prometheus_client.utils import floatToGoString

from coordinator.metrics import process_metrics
from coordinator.metrics.registry import Cells, Labels, Sample, number
from kube.process.meter import Metric

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4
_BY_NAME = {metric.name: metric for metric in process_metrics.METRICS}


def text(found: Mapping[Metric, Mapping[Labels, Cells]]) -> bytes:
    """Return the page with these series, ordered by the names of their metrics."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collected([_family(metric, found[metric]) for metric in sorted(found, key=lambda m: m.name)]))
    return generate_latest(registry)


def process_samples() -> Iterator[Sample]:
    """Yield the figures of the operating system about this process. Nothing where there is no /proc."""
    for family in ProcessCollector(registry=None).collect():
        for sample in family.samples:
            if (metric := _BY_NAME.get(sample.name)) is not None:
                yield number(metric, sample.value)


class _Collected(Collector):
    def __init__(self, families: list[Family]) -> None:
        self._families = families

    def collect(self) -> Iterable[Family]:
        return self._families


def _family(metric: Metric, series: Mapping[Labels, Cells]) -> Family:
    family = Family(metric.name.removesuffix("_total"), metric.help, metric.kind)
    for labels, cells in sorted(series.items()):
        named = dict(zip(metric.labels, labels, strict=True))
        if metric.kind == "histogram":
            _add_histogram(family, metric, named, cells)
        else:
            family.add_sample(metric.name, named, cells[0])
    return family


def _add_histogram(family: Family, metric: Metric, named: dict[str, str], cells: Cells) -> None:
    *counts, total = cells
    bounds = [*map(floatToGoString, metric.buckets), "+Inf"]
    for bound, below in zip(bounds, itertools.accumulate(counts), strict=True):
        family.add_sample(f"{metric.name}_bucket", {**named, "le": bound}, below)
    family.add_sample(f"{metric.name}_count", named, sum(counts))
    family.add_sample(f"{metric.name}_sum", named, total)
