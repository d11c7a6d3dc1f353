"""Reports on their way into the store: at most one report of each pod in 5 s, written together, and lost without
harm.
"""

import logging
from collections.abc import Iterable, Mapping

import pytest

from coordinator.reports.batches import ReportBatches
from coordinator.reports.report_values import ArrivedReport, Report
from crds.keys import JobKey
from queues.errors import StoreUnreachable
from tests.doubles.memory_reports import MemoryReports
from tests.support.clock import START, Clock

JOB, OTHER = JobKey("ns", "job", "uid-1"), JobKey("ns", "job", "uid-2")


class Store(MemoryReports):
    """A store that counts batches, and that can be made unreachable."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        self.sizes: list[int] = []
        self.is_away = False

    def keep(self, arrived: Iterable[ArrivedReport]) -> None:
        batch = list(arrived)
        self.sizes.append(len(batch))
        if self.is_away:
            raise StoreUnreachable("Redis does not answer")
        super().keep(batch)


@pytest.fixture
def store(clock: Clock) -> Store:
    return Store(clock)


def report(step: int, pod: str = "job-worker-0", checkpoint: int | None = None, last: bool = False) -> Report:
    return Report(pod=pod, step=step, checkpoint=checkpoint, last=last)


def test_reports_travel_together_with_the_times_of_their_arrival(clock: Clock, store: Store) -> None:
    batches = ReportBatches(store, clock=clock)
    assert batches.take(JOB, report(1)) == 0
    clock.step(0.5)
    assert batches.take(JOB, report(1, "job-worker-1")) == batches.take(OTHER, report(9)) == 0
    clock.step(0.5)
    batches.write()
    batches.write()
    assert store.sizes == [3]
    pods = store.read([JOB])[JOB].pods
    assert {name: each.at for name, each in pods.items()} == {"job-worker-0": START, "job-worker-1": START + 0.5}


def test_a_pod_waits_five_seconds_and_no_other_pod_waits_for_it(clock: Clock, store: Store) -> None:
    batches = ReportBatches(store, clock=clock)
    assert batches.take(JOB, report(1)) == 0
    clock.step(0.1)
    assert batches.take(JOB, report(2)) == 5
    clock.step(4.0)
    assert batches.take(JOB, report(2)) == 1
    assert batches.take(OTHER, report(2)) == batches.take(JOB, report(2, "job-worker-1")) == 0
    clock.step(0.9)
    assert batches.take(JOB, report(3)) == 0
    batches.write()
    assert store.read([JOB])[JOB].pods["job-worker-0"].step == 3


def test_pods_that_have_reported_are_forgotten_after_their_time(clock: Clock, store: Store) -> None:
    batches = ReportBatches(store, clock=clock)
    for number in range(1000):
        batches.take(JOB, report(1, f"job-worker-{number}"))
        clock.step(0.01)
    assert len(batches._taken) <= 501


def test_a_batch_that_cannot_be_written_is_lost_and_said_once(
    clock: Clock, store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    batches = ReportBatches(store, clock=clock)
    store.is_away = True
    for step in range(3):
        assert batches.take(JOB, report(step)) == 0
        batches.write()
        clock.step(5)
    store.is_away = False
    batches.write()
    assert store.read([JOB]) == {}
    batches.take(JOB, report(4))
    batches.write()
    assert store.read([JOB])[JOB].pods["job-worker-0"].step == 4
    assert [record.getMessage() for record in caplog.records] == [
        "reports are lost: Redis does not answer",
        "reports are kept again",
    ]


def test_answers_to_a_request_to_save_are_told_once_they_can_be_read(clock: Clock, store: Store) -> None:
    told: list[tuple[Mapping[JobKey, int], int]] = []
    batches = ReportBatches(store, lambda saved: told.append((saved, store.read([JOB])[JOB].checkpoint)), clock)
    batches.take(JOB, report(1, checkpoint=7))
    batches.take(JOB, report(1, "job-worker-1", checkpoint=8))
    batches.take(OTHER, report(1))
    batches.write()
    assert told == [({JOB: 8}, 8)]


def test_an_answer_to_the_open_request_to_save_does_not_wait_once_for_each_request(clock: Clock, store: Store) -> None:
    batches = ReportBatches(store, clock=clock)
    assert batches.take(JOB, report(1)) == 0
    assert batches.take(JOB, report(2, checkpoint=7)) == 5, "no request is open"
    assert batches.take(JOB, report(2, checkpoint=7), 8) == 5, "the report answers an earlier request"
    assert batches.take(JOB, report(2, checkpoint=8), 8) == 0
    assert batches.take(JOB, report(3, checkpoint=8), 8) == 5, "the request is already answered"
    clock.step(5.0)
    assert batches.take(JOB, report(4), 8) == 0, "the answer does not start the 5 s anew"
    assert batches.take(JOB, report(5, checkpoint=8), 8) == 5, "the request is already answered"
    assert batches.take(JOB, report(6, checkpoint=9), 9) == 0, "the report answers a new request"
    batches.write()
    assert store.read([JOB])[JOB].pods["job-worker-0"].step == 6


def test_an_answer_that_came_in_its_turn_counts_as_the_one_of_its_request(clock: Clock, store: Store) -> None:
    batches = ReportBatches(store, clock=clock)
    assert batches.take(JOB, report(1, checkpoint=8), 8) == 0
    assert batches.take(JOB, report(2, checkpoint=8), 8) == 5


def test_the_last_report_of_a_process_does_not_wait_once_in_five_seconds(clock: Clock, store: Store) -> None:
    batches = ReportBatches(store, clock=clock)
    assert batches.take(JOB, report(1)) == 0
    assert batches.take(JOB, report(2, last=True)) == 0
    assert batches.take(JOB, report(3, last=True)) == 5
    batches.write()
    assert store.read([JOB])[JOB].pods["job-worker-0"].step == 2


def test_an_answer_that_waits_for_its_batch_stays_in_the_report_that_takes_its_place(
    clock: Clock, store: Store
) -> None:
    batches = ReportBatches(store, clock=clock)
    batches.take(JOB, report(1, checkpoint=8), 8)
    batches.take(JOB, report(2, last=True), 8)
    batches.write()
    assert store.read([JOB])[JOB].checkpoint == 8
    assert store.read([JOB])[JOB].pods["job-worker-0"].step == 2


def test_answers_are_forgotten_after_a_day(clock: Clock, store: Store) -> None:
    batches = ReportBatches(store, clock=clock)
    for number in range(100):
        batches.take(JOB, report(1, f"job-worker-{number}", checkpoint=8), 8)
        clock.step(3600)
    assert len(batches._answered) <= 25
