"""The metrics of one process: its registry, its page, and its reports to its supervisor.

One rule: this module only connects the parts.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from coordinator import release
from coordinator.life.channel import Report
from coordinator.life.children import Children
from coordinator.metrics import exposition, increments, process_metrics
from coordinator.metrics.page import MetricsPage
from coordinator.metrics.queue_names import QueueNames
from coordinator.metrics.registry import Registry, Sample, number
from kube.informer import Informer
from kube.process import request_metrics
from queues import redis_keys

FIELD = "metrics"
"""The field of a report to a supervisor."""


@dataclass(slots=True)
class ProcessMetrics:
    """The counts of one process, and the page that shows them."""

    registry: Registry
    page: MetricsPage = field(init=False)

    def __post_init__(self) -> None:
        self.registry.add_source(_describe_process)
        self.page = MetricsPage(lambda: exposition.text(self.registry.collect()))

    def hear(self, report: Report) -> None:
        """Add the counts of a supervised process since its last report."""
        increments.add(self.registry, report.get(FIELD))

    def show(self, children: Children) -> None:
        """Add the gauges of supervised processes to the page."""
        self.registry.add_source(
            lambda: [sample for report in children.reports() for sample in increments.gauges(report.get(FIELD))]
        )


def new(most_queues: int) -> ProcessMetrics:
    """Return the metrics of a process. At most this many queues have series of their own."""
    return ProcessMetrics(Registry(QueueNames(most_queues)))


def restarts(informers: Iterable[Informer[Any]]) -> Iterable[Sample]:
    """Yield how often the watches of informers began again."""
    for informer in informers:
        name, group = informer.resource.plural, informer.resource.group
        label = f"{name}.{group}" if group else name
        yield number(request_metrics.WATCH_RESTARTS, informer.restarts, label)


def _describe_process() -> Iterable[Sample]:
    yield number(process_metrics.BUILD_INFO, 1, release.version(), str(redis_keys.OWN_LAYOUT))
    yield from exposition.process_samples()
