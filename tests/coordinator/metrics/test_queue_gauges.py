"""The gauges of queues have the figures of `torchq queue list`."""

from collections.abc import Iterable
from dataclasses import replace

import pytest

from coordinator.metrics import leader_metrics as metrics
from coordinator.metrics import queue_gauges
from coordinator.metrics.queue_names import QueueNames
from coordinator.metrics.registry import Sample
from coordinator.query import documents
from kube.process.meter import Metric
from queues.values import Snapshot
from tests.doubles.memory_store import MemoryStore
from tests.support.queues.builders import START, entry, reservation, spec

NOW = START + 100.0


@pytest.fixture
def snapshot() -> Snapshot:
    held = [reservation("x", "a", cpu=2500), reservation("y", "a", cpu=2000), reservation("z", "b", cpu=8000)]
    waiting = [entry("v", "a", START + 10), entry("w", "a", START + 40), entry("u", "b", START + 70)]
    store = MemoryStore(lambda *_: None)
    store.rebuild(1, held, waiting)
    specs = [
        replace(spec("a", 3, cpu=8000), cohort="c"),
        replace(spec("b", 1, cpu=1500, memory=2**30), cohort="c"),
        spec("idle", 5),
    ]
    store.configure(specs, {"cpu": 64_000})
    return store.snapshot(16)


def values(found: Iterable[Sample], metric: Metric) -> dict[tuple[str, ...], float]:
    return {sample.labels: sample.cells[0] for sample in found if sample.metric is metric}


def test_figures_are_those_of_the_documents(snapshot: Snapshot) -> None:
    found = list(queue_gauges.samples(snapshot, NOW, "jobs", {"b": "HoldAndDrain"}, QueueNames(10).label))
    listed = documents.queues(snapshot, NOW, "jobs", {"b": "HoldAndDrain"}, {}, lambda _: False)
    shown = {item["metadata"]["name"]: item for item in listed}
    for name, item in shown.items():
        status = item["status"]
        assert values(found, metrics.PENDING_JOBS)[name, "active"] == status["pending"]
        assert values(found, metrics.ADMITTED_JOBS)[name,] == status["admitted"]
        assert values(found, metrics.OLDEST_WAIT)[name,] == (status["oldestWaitSeconds"] or 0.0)
        assert values(found, metrics.WEIGHT)[name,] == item["spec"]["weight"]
        assert f"{int(100 * values(found, metrics.SHARE)[name,])}%" == status["share"]
        assert f"{int(100 * values(found, metrics.TARGET_SHARE)[name,])}%" == status["target"]
    assert values(found, metrics.QUOTA) == {("a", "cpu"): 8.0, ("b", "cpu"): 1.5, ("b", "memory"): 2.0**30}
    assert values(found, metrics.USAGE) == {
        ("a", "cpu"): 4.5,
        ("a", "jobs"): 2.0,
        ("b", "cpu"): 8.0,
        ("b", "jobs"): 1.0,
        ("b", "memory"): 0.0,
    }
    assert values(found, metrics.COHORT_QUOTA) == {("c", "cpu"): 9.5, ("c", "memory"): 2.0**30}
    assert values(found, metrics.COHORT_USAGE) == {("c", "cpu"): 12.5, ("c", "memory"): 0.0}
    assert values(found, metrics.POOL_CAPACITY) == {("cpu",): 64.0}
    assert values(found, metrics.POOL_USAGE)[("cpu",)] == 12.5
    assert values(found, metrics.QUEUE_INFO).keys() == {
        ("a", "c", "BestEffortFIFO", "None"),
        ("b", "c", "BestEffortFIFO", "HoldAndDrain"),
        ("idle", "", "BestEffortFIFO", "None"),
    }


def test_queues_beyond_the_bound_are_one_series_with_their_sums_and_the_longest_wait(snapshot: Snapshot) -> None:
    found = list(queue_gauges.samples(snapshot, NOW, "jobs", {}, QueueNames(1).label))
    assert values(found, metrics.QUEUES) == {(): 3.0}
    assert values(found, metrics.UNNAMED_QUEUES) == {(): 2.0}
    assert values(found, metrics.WEIGHT) == {("a",): 3.0, ("",): 6.0}
    assert values(found, metrics.PENDING_JOBS) == {("a", "active"): 2.0, ("", "active"): 1.0}
    assert values(found, metrics.OLDEST_WAIT) == {("a",): 90.0, ("",): 30.0}
    assert sum(values(found, metrics.SHARE).values()) == pytest.approx(1.0)
    assert [labels[0] for labels in values(found, metrics.QUEUE_INFO)] == ["a"]


def test_cohorts_are_bounded_as_their_queues_are() -> None:
    store = MemoryStore(lambda *_: None)
    store.rebuild(1, [], [])
    cohorts = {"a": "x", "b": "y", "c": "x", "d": "z", "e": ""}
    store.configure([replace(spec(name, 1, cpu=1000), cohort=cohort) for name, cohort in cohorts.items()], None)
    found = list(queue_gauges.samples(store.snapshot(1), NOW, "jobs", {}, QueueNames(1).label))
    assert values(found, metrics.COHORT_QUOTA) == {("x", "cpu"): 2.0, ("", "cpu"): 2.0}
    assert values(found, metrics.COHORT_USAGE) == {("x", "cpu"): 0.0, ("", "cpu"): 0.0}


def test_waiting_jobs_count_by_reason_and_only_known_reasons_are_labels() -> None:
    jobs = [("a", "", True), ("a", "Held", False), ("b", "Parked", False), ("b", "WaitingForQuota", True)]
    jobs.append(("b", "a user wrote this", True))
    found = list(queue_gauges.waiting(jobs, QueueNames(1).label))
    assert values(found, metrics.WAITING_JOBS) == {
        ("BehindOthers",): 1.0,
        ("Held",): 1.0,
        ("Parked",): 1.0,
        ("WaitingForQuota",): 1.0,
        ("Other",): 1.0,
    }
    assert values(found, metrics.PENDING_JOBS) == {("a", "inadmissible"): 1.0, ("", "inadmissible"): 1.0}
