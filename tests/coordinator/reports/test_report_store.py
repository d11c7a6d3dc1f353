"""The contract of the store of reports, for Redis and for its twin in memory."""

from collections.abc import Callable
from typing import Any

import pytest

from coordinator.reports.report_store import KEPT_SECONDS, RedisReports, ReportStore
from coordinator.reports.report_values import ArrivedReport, JobReports, PodReport, Progress, Report
from crds.keys import JobKey
from queues import errors
from queues.redis import connection
from tests.support.clock import START, Clock

JOB = JobKey("ns", "job", "uid-1")
OTHER = JobKey("ns", "job", "uid-2")


def arrived(
    step: int | None, pod: str = "job-worker-0", job: JobKey = JOB, age: float = 0.0, **fields: Any
) -> ArrivedReport:
    return ArrivedReport(job=job, report=Report(pod=pod, step=step, **fields), age=age)


def pod(store: ReportStore, name: str = "job-worker-0") -> PodReport:
    return store.read([JOB])[JOB].pods[name]


def test_a_report_is_read_as_it_was_kept_and_apart_from_other_jobs_and_pods(store: ReportStore, clock: Clock) -> None:
    store.keep(
        [
            arrived(7, samples_per_second=0.0, loss=-0.1 + 0.2, gauges={"grad_norm": 1e300, "lr": 3.0}, checkpoint=12),
            arrived(2**53 - 1, "job-worker-1", age=0.25, run="0f"),
            arrived(1, job=OTHER),
        ]
    )
    clock.step(2)
    first = PodReport(
        step=7,
        at=START,
        moved_at=START,
        samples_per_second=0.0,
        loss=-0.1 + 0.2,
        gauges={"grad_norm": 1e300, "lr": 3.0},
        checkpoint=12,
    )
    second = PodReport(step=2**53 - 1, at=START - 0.25, moved_at=START - 0.25, run="0f")
    expected = JobReports(read_at=START + 2, pods={"job-worker-0": first, "job-worker-1": second})
    assert store.read([JOB, JobKey("ns", "silent", "uid-3")]) == {JOB: expected}
    assert store.read([OTHER])[OTHER].pods.keys() == {"job-worker-0"}


def test_a_step_moves_forward_and_after_a_restart_back_and_stands_otherwise(store: ReportStore, clock: Clock) -> None:
    store.keep([arrived(10)])
    clock.step(5)
    store.keep([arrived(10)])
    stands = pod(store)
    assert (stands.at, stands.moved_at, stands.steps_per_second) == (START + 5, START, None)
    clock.step(5)
    store.keep([arrived(30)])
    assert (pod(store).moved_at, pod(store).steps_per_second) == (START + 10, 2.0)
    clock.step(5)
    store.keep([arrived(30)])
    assert (pod(store).moved_at, pod(store).steps_per_second) == (START + 10, 2.0)
    clock.step(5)
    store.keep([arrived(4)])
    assert (pod(store).step, pod(store).moved_at, pod(store).steps_per_second) == (4, START + 20, None)


def test_a_percentage_moves_and_a_report_without_a_step_keeps_the_step(store: ReportStore, clock: Clock) -> None:
    def percent(percent: int, step: int | None = None, **fields: Any) -> PodReport:
        clock.step(5)
        gauges = {"progress": 1.0}
        store.keep([arrived(step, progress=Progress(percent=percent, **fields), gauges=gauges)])
        return pod(store)

    first, second, third = percent(0), percent(1), percent(1, remaining_seconds=7)
    assert [(each.step, each.moved_at - START) for each in (first, second, third)] == [(0, 5), (0, 10), (0, 10)]
    assert third.progress == Progress(percent=1, remaining_seconds=7)
    assert (percent(40, 20, steps=50).step, percent(80, 40, steps=50).steps_per_second) == (20, 4.0)
    end = percent(100)
    assert (end.step, end.moved_at, percent(100).step) == (50, START + 30, 50)
    clock.step(5)
    store.keep([arrived(60)])
    assert (pod(store).step, pod(store).progress) == (60, None)


@pytest.mark.parametrize("rest", ["", "{", "[]", '{"progress":3}', '{"progress":{"steps":"x","percent":"y"}}'])
def test_a_record_that_is_not_readable_is_replaced(client: connection.Connection, rest: str) -> None:
    client.hset(f"torchq:reports:{JOB}", "job-worker-0", f"7 1 1 - 0 {rest}")
    store = RedisReports(client)
    store.keep([arrived(None, progress=Progress(percent=100))])
    assert (pod(store).step, pod(store).progress) == (7, Progress(percent=100))


def test_a_batch_that_is_sent_twice_or_late_moves_nothing_again(store: ReportStore, clock: Clock) -> None:
    store.keep([arrived(10)])
    clock.step(10)
    store.keep([arrived(30)])
    clock.step(1)
    store.keep([arrived(30), arrived(30, age=60)])
    assert (pod(store).at, pod(store).moved_at, pod(store).steps_per_second) == (START + 11, START + 10, 2.0)


def test_the_answer_to_a_request_to_save_outlives_later_and_older_reports(store: ReportStore) -> None:
    store.keep([arrived(1, checkpoint=50)])
    store.keep([arrived(2), arrived(3, checkpoint=49), arrived(3, "job-worker-1", checkpoint=7)])
    assert pod(store).checkpoint == 50
    assert store.read([JOB])[JOB].checkpoint == 50


def test_reports_that_are_lost_are_begun_anew(store: ReportStore, clock: Clock, lose: Callable[[], None]) -> None:
    store.keep([arrived(10, checkpoint=3)])
    clock.step(10)
    lose()
    assert store.read([JOB]) == {}
    store.keep([arrived(20)])
    assert pod(store) == PodReport(step=20, at=START + 10, moved_at=START + 10)


def test_reports_expire_with_the_last_one_of_their_job(client: connection.Connection) -> None:
    store = RedisReports(client)
    store.keep([arrived(1)])
    assert client.ttl(f"torchq:reports:{JOB}") == KEPT_SECONDS
    client.expire(f"torchq:reports:{JOB}", 100)
    store.keep([arrived(1, "job-worker-1")])
    assert client.ttl(f"torchq:reports:{JOB}") == KEPT_SECONDS


def test_a_record_of_a_newer_version_is_read(client: connection.Connection) -> None:
    progress = '{"percent":4,"remaining_seconds":null,"steps":9,"epochs":2}'
    client.hset(f"torchq:reports:{JOB}", "job-worker-0", f'7 1 1 - 0 {{"progress":{progress}}}')
    assert pod(RedisReports(client)).progress == Progress(percent=4, steps=9)


@pytest.mark.parametrize("record", ["", "x", "1 2 3 - 0 {", "1 2 3 - 0 []"])
def test_a_record_of_another_program_is_an_error_of_the_store(client: connection.Connection, record: str) -> None:
    client.hset(f"torchq:reports:{JOB}", "job-worker-0", record)
    with pytest.raises(errors.Unreadable):
        RedisReports(client).read([JOB])
