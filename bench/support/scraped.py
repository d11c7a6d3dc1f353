"""A reader of metrics beside a benchmark of picks, as a Prometheus server that scrapes a leader.

One rule: the leader's own reading and page, on a connection of their own, every few seconds. The first reading is made
before the benchmark, as that of a leader is made when its term begins.
"""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from bench.report import Figures
from coordinator.metrics import exposition
from coordinator.metrics.page import Page
from coordinator.metrics.queue_gauge_reader import QueueGaugeReader
from coordinator.metrics.queue_names import QueueNames
from coordinator.metrics.registry import Registry
from coordinator.query.queries import StoreQueries
from crds.resources import amounts
from queues import rules
from queues.redis import connection
from queues.storage import stats
from queues.storage.redis_store import RedisStore

SCRAPE_SECONDS = 5.0


@dataclass(slots=True)
class Scrapes:
    """What reading the metrics took."""

    pages: int = 0
    page_bytes: int = 0
    page_seconds: float = 0.0
    """The CPU time of all pages."""
    readings: int = 0
    reading_seconds: float = 0.0
    """The CPU time of all readings of the queues."""
    rest_seconds: float = 0.0
    """The pauses after these readings."""
    seconds: float = 0.0
    """How long pages were asked for."""

    def figures(self) -> Figures:
        """Return the figures of the benchmark. The share is that of pages in its time, and that of readings in theirs,
        which may be longer."""
        pages = self.page_seconds / self.seconds
        readings = self.reading_seconds / (self.reading_seconds + self.rest_seconds)
        return {
            "pages": self.pages,
            "page_mib": self.page_bytes / 2**20,
            "page_cpu_ms": 1e3 * self.page_seconds / self.pages,
            "readings": self.readings,
            "reading_cpu_ms": 1e3 * self.reading_seconds / self.readings,
            "metrics_share_of_a_core": pages + readings,
        }


@contextmanager
def scraping(url: str, most_queues: int) -> Iterator[Scrapes]:
    """Read the queues and a page of their metrics again and again while the block runs."""
    client = connection.connect(url, client_name="torchq-bench-metrics")
    queries = StoreQueries(RedisStore(client), lambda: stats.read(client), rules.from_settings(amounts.JOBS, 1))
    names, scrapes, stop = QueueNames(most_queues), Scrapes(), threading.Event()
    reader = QueueGaugeReader(
        snapshot=queries.snapshot,
        stats=lambda: stats.read(client),
        jobs=list,
        policies=dict,
        leading=lambda: True,
        cost=amounts.JOBS,
        queues=names,
    )
    registry = Registry(names)
    registry.add_source(reader.samples)
    page = Page(lambda: exposition.text(registry.collect()))
    pause = _read_once(reader, scrapes)
    threads = [
        threading.Thread(target=_read, args=(reader, scrapes, stop, pause)),
        threading.Thread(target=_scrape, args=(page, scrapes, stop)),
    ]
    began = time.monotonic()
    for thread in threads:
        thread.start()
    try:
        yield scrapes
    finally:
        stop.set()
        for thread in threads:
            thread.join()
        scrapes.seconds = time.monotonic() - began
        client.close()


def _read(reader: QueueGaugeReader, scrapes: Scrapes, stop: threading.Event, pause: float) -> None:
    while not stop.wait(pause):
        pause = _read_once(reader, scrapes)


def _read_once(reader: QueueGaugeReader, scrapes: Scrapes) -> float:
    """Read the queues, and return the pause before the next reading."""
    began = time.thread_time()
    pause = reader.read()
    scrapes.readings += 1
    scrapes.reading_seconds += time.thread_time() - began
    scrapes.rest_seconds += pause
    return pause


def _scrape(page: Page, scrapes: Scrapes, stop: threading.Event) -> None:
    while True:
        began = time.thread_time()
        scrapes.page_bytes = len(page.text())
        scrapes.pages, scrapes.page_seconds = scrapes.pages + 1, scrapes.page_seconds + time.thread_time() - began
        if stop.wait(SCRAPE_SECONDS):
            return
