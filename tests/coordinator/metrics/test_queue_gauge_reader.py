"""The reading of the leader's gauges: only while the coordinator leads, and without outdated figures."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import pytest

from coordinator.cache.views import JobView
from coordinator.metrics import leader_metrics
from coordinator.metrics.queue_gauge_reader import INTERVAL_SECONDS, REST, UNASKED_SECONDS, QueueGaugeReader
from coordinator.metrics.queue_names import QueueNames
from coordinator.metrics.registry import Sample
from crds.keys import JobKey
from kube.process.meter import Metric
from queues.errors import StoreUnreachable
from queues.registrations import Registration
from queues.storage.stats import QueueStats
from queues.values import Snapshot
from tests.doubles.memory_store import MemoryStore
from tests.support.queues.builders import START, spec


@dataclass
class Scene:
    """A leader, its store, its workers and its jobs."""

    leads: bool = True
    away: bool = False
    cpu: float = 0.0
    queues: tuple[str, ...] = ("a", "b")
    explicit: tuple[str, ...] = ()
    jobs: list[JobView] = field(default_factory=list)
    workers: tuple[Registration, ...] = ()

    def reader(self) -> QueueGaugeReader:
        return QueueGaugeReader(
            snapshot=self.snapshot,
            stats=lambda: QueueStats(
                at=START,
                epoch=1,
                picks=0,
                runs=0,
                ready=7,
                delayed=0,
                leased=0,
                waiting=0,
                admitted=0,
                members=self.workers,
            ),
            jobs=lambda: self.jobs,
            policies=lambda: dict.fromkeys(self.explicit, "None"),
            leading=lambda: self.leads,
            cost="jobs",
            queues=QueueNames(10),
            clock=lambda: START,
            cpu_clock=self.tick,
        )

    def snapshot(self) -> Snapshot:
        if self.away:
            raise StoreUnreachable("Redis is away")
        store = MemoryStore(lambda *_: None)
        store.rebuild(1, [], [])
        store.configure([spec(name) for name in self.queues], None)
        return store.snapshot(1)

    def tick(self) -> float:
        self.cpu += 0.1
        return self.cpu


def labels(samples: Iterable[Sample], metric: Metric) -> set[tuple[str, ...]]:
    return {sample.labels for sample in samples if sample.metric is metric}


def waiting(name: str, queue: str, **fields: object) -> JobView:
    return JobView(key=JobKey("team", name, name), queue=queue, submitted=START, **fields)  # type: ignore[arg-type]


def test_a_reading_shows_queues_and_ends_with_them() -> None:
    scene = Scene()
    reader = scene.reader()
    assert reader.samples() == ()
    assert reader.read() == pytest.approx(REST * 0.1)
    assert labels(reader.samples(), leader_metrics.WEIGHT) == {("a",), ("b",)}
    scene.queues = ("b",)
    reader.read()
    assert labels(reader.samples(), leader_metrics.WEIGHT) == {("b",)}


def test_a_deleted_queue_is_gone_from_the_next_page_before_the_next_reading() -> None:
    scene = Scene(queues=("a", "b", "implicit"), explicit=("a", "b"))
    reader = scene.reader()
    reader.read()
    scene.explicit = ("b",)
    assert labels(reader.samples(), leader_metrics.WEIGHT) == {("b",), ("implicit",)}
    assert {each.labels[0] for each in reader.samples() if each.metric.labels[:1] == ("queue",)} == {"b", "implicit"}
    assert labels(reader.samples(), leader_metrics.QUEUES) == {()}


@pytest.mark.parametrize("end", ["leads", "away"])
def test_nothing_is_shown_outside_of_a_term_or_while_redis_is_away(end: str) -> None:
    scene = Scene()
    reader = scene.reader()
    reader.read()
    if end == "leads":
        scene.leads = False
        assert reader.samples() == (), "the figures end at once, before the next reading"
        assert reader.read() == INTERVAL_SECONDS
        scene.leads = True
    else:
        scene.away = True
        reader.read()
    assert reader.samples() == (), "a new term does not show the figures of the last term"


def test_readings_are_rarer_while_nobody_asks_for_a_page() -> None:
    scene = Scene(leads=False)
    reader = scene.reader()
    assert reader.read() == UNASKED_SECONDS
    reader.samples()
    assert reader.read() == INTERVAL_SECONDS


def test_more_queues_than_series_are_one_line_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    scene = Scene(queues=tuple(f"queue-{number:05}" for number in range(12)))
    reader = scene.reader()
    for _ in range(3):
        reader.read()
    assert caplog.messages == ["10 of 12 queues have metrics of their own; see metrics_queues"]
    assert len(labels(reader.samples(), leader_metrics.WEIGHT)) == 11


def test_waiting_jobs_and_workers_count_by_their_state() -> None:
    worker = Registration(worker="w", threads=4, version="0.1.0", layout=10)
    old = Registration(worker="o", threads=4, version="", layout=0)
    jobs = [
        waiting("held", "a", held=True),
        waiting("unknown", "no-such-queue", reason="QueueNotFound"),
        waiting("behind", "a"),
        waiting("suspended", "a", suspended=True),
        waiting("finished", "a", finished=True),
    ]
    reader = Scene(jobs=jobs, workers=(worker, worker, old, replace(worker, clock="the clock is wrong"))).reader()
    reader.read()
    found = {(each.metric.name, *each.labels): each.cells[0] for each in reader.samples()}
    assert found["torchq_workers", "0.1.0", "10"] == 2.0
    assert found["torchq_workers", "", "0"] == 1.0
    assert found["workqueue_depth", "reconcile"] == 7.0
    reasons = {key[1]: value for key, value in found.items() if key[0] == "torchq_waiting_jobs"}
    assert reasons == {"Held": 1.0, "QueueNotFound": 1.0, "BehindOthers": 1.0}
    assert found["torchq_pending_jobs", "a", "inadmissible"] == 1.0
    assert found["torchq_pending_jobs", "", "inadmissible"] == 1.0, "a queue that a job invents is no label"
    idle = Scene().reader()
    idle.read()
    assert [each.cells for each in idle.samples() if each.metric is leader_metrics.WORKERS] == [(0.0,)]
