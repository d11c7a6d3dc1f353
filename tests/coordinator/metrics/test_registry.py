"""The counts of a process: series, histograms, the bound on queues, and queues that are deleted."""

import threading

from coordinator.metrics.queue_names import QueueNames
from coordinator.metrics.registry import Registry, number
from kube.process.meter import Metric

DONE = Metric("done_total", "Done.", of="worker", labels=("queue", "result"))
SECONDS = Metric("wait_seconds", "Waits.", of="worker", labels=("queue",), buckets=(1.0, 5.0))
SIZE = Metric("size", "Size.", of="worker")
UP = Metric("up", "Up.", of="each", merge="least")


def test_a_histogram_counts_a_value_in_the_first_bucket_that_is_not_below_it() -> None:
    registry = Registry(QueueNames(10))
    for value in (0.5, 1.0, 1.1, 5.0, 9.0):
        registry.observe(SECONDS, value, "a")
    assert registry.collect() == {SECONDS: {("a",): (2.0, 2.0, 1.0, 16.6)}}


def test_queues_beyond_the_bound_share_one_series() -> None:
    registry = Registry(QueueNames(2))
    for queue in ("a", "b", "c", "d", "a", "c"):
        registry.count(DONE, queue, "ok")
    assert registry.collect()[DONE] == {("a", "ok"): (2.0,), ("b", "ok"): (1.0,), ("", "ok"): (3.0,)}


def test_the_series_of_a_deleted_queue_go_and_a_new_queue_of_its_name_begins_at_0() -> None:
    queues = {"a", "b"}
    registry = Registry(QueueNames(1, lambda name: name in queues))
    registry.count(DONE, "a", "ok")
    registry.count(DONE, "b", "ok")
    queues.remove("a")
    registry.count(DONE, "unknown", "ok")
    assert registry.collect()[DONE] == {("", "ok"): (2.0,)}
    registry.count(DONE, "b", "ok")
    assert registry.collect()[DONE] == {("", "ok"): (2.0,), ("b", "ok"): (1.0,)}, "b has the place of a"
    queues.add("a")
    queues.remove("b")
    registry.collect()
    registry.count(DONE, "a", "ok")
    assert registry.collect()[DONE][("a", "ok")] == (1.0,)


def test_gauges_of_several_sources_are_merged_as_their_metric_says() -> None:
    registry = Registry(QueueNames(1))
    for value in (2, 3):
        registry.add_source(lambda value=value: [number(SIZE, value), number(UP, value - 2)])  # type: ignore[misc]
    assert registry.collect() == {SIZE: {(): (5.0,)}, UP: {(): (0.0,)}}


def test_no_count_of_eight_threads_is_lost_while_another_thread_collects() -> None:
    registry = Registry(QueueNames(4))

    def work() -> None:
        for index in range(2_000):
            registry.count(DONE, f"queue-{index % 8}", "ok")
            registry.observe(SECONDS, 1.0, "a")

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        registry.collect()
    found = registry.collect()
    assert sum(cells[0] for cells in found[DONE].values()) == 16_000
    assert found[SECONDS][("a",)] == (16_000.0, 0.0, 0.0, 16_000.0)
