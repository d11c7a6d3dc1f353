"""The signs of life of one process: its port for probes and metrics, and what it tells its supervisor.

One rule: a process with a port of its own tells its supervisor no metrics.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from coordinator.http import life_port
from coordinator.life import channel
from coordinator.life import children as life_children
from coordinator.life.channel import Report
from coordinator.life.health_checks import Probes
from coordinator.metrics import process_page
from coordinator.metrics.increments import Increments
from coordinator.metrics.process_page import ProcessMetrics
from coordinator.settings import Settings


@contextmanager
def alive(
    settings: Settings,
    probes: Probes,
    figures: ProcessMetrics,
    queues: Callable[[], Iterable[str] | None] = lambda: None,
) -> Iterator[None]:
    """Answer probes and show metrics at the port of the settings, and tell the supervisor, while the block runs.

    `queues` returns the names of all queues, if they are known.
    """
    told = Increments(figures.registry, queues, implicit=settings.implicit_queues)
    with life_port.serving(settings, probes, figures.page) as url:

        def report() -> Report:
            return {**life_children.report(probes, url), **({} if url else {process_page.FIELD: told.report()})}

        with channel.telling(report, figures.registry.news):
            yield
