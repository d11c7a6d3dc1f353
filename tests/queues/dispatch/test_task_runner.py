"""The threads of a worker process, with a work queue in memory."""

import logging
import threading
from collections.abc import Callable, Iterator

import pytest

from crds.keys import JobKey
from kube.stop import Stop
from queues import errors
from queues.dispatch.lease_renewer import LeaseRenewer
from queues.dispatch.task_runner import TaskRunner
from queues.redis.log_throttle import FailureLog, OutageLog
from queues.tasks import Offer, Task
from tests.doubles.memory_work import MemoryWork
from tests.doubles.recording_meter import RecordingMeter
from tests.queues.dispatch.conftest import Clock
from tests.support.queues.builders import registration
from tests.support.waiting import SECONDS, until

log = logging.getLogger("test")
KEYS = [JobKey("team", f"job-{number}", "uid") for number in range(4)]


class Office:
    """A work queue, and a reconcile that waits until the test opens the gate."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.epoch = 1
        self.work = MemoryWork(self.clock, lambda: self.epoch, lambda _: None)
        self.work.register(registration("w1", len(KEYS)))
        self.gate = threading.Event()
        self.begun: list[JobKey] = []
        self.error: Exception | None = None

    def reconcile(self, task: Task, _holds: Callable[[], bool]) -> float | None:
        self.begun.append(task.key)
        assert self.gate.wait(SECONDS)
        if self.error:
            raise self.error
        return None

    def runs(self, threads: int, *expected: type[Exception]) -> TaskRunner:
        return TaskRunner(
            self.work, self.reconcile, threads, outage=OutageLog(logging.getLogger("test")), expected=expected
        )

    def leases(self, *keys: JobKey) -> list[tuple[JobKey, str]]:
        self.work.offer([Offer(key=key, tenant="a") for key in keys])
        self.work.dispatch()
        found = []
        while batch := self.work.pop():
            found += batch
        return found


@pytest.fixture
def office() -> Iterator[Office]:
    office = Office()
    yield office
    office.gate.set()


def test_stop_returns_leases_that_have_not_started(office: Office) -> None:
    runs = office.runs(2)
    leases = office.leases(*KEYS)
    runs.run_batch(leases, lambda: len(office.begun) == 2, 10)
    assert sorted(runs.leases()) == sorted(leases[:2])
    assert office.work.dispatch() == 2, "the other two are ready again"
    office.gate.set()
    assert runs.wait_for_end(SECONDS) == 0


def test_leases_that_find_no_free_thread_in_time_are_returned(office: Office) -> None:
    runs = office.runs(1)
    runs.run_batch(office.leases(*KEYS), lambda: False, 0.05)
    until(lambda: office.begun == KEYS[:1])
    assert office.work.dispatch() == 3


def test_each_run_counts_by_its_result_and_keys_that_are_given_back_do_not(office: Office) -> None:
    runs = office.runs(2, OSError)
    runs.meter = meter = RecordingMeter()
    runs.run_batch(office.leases(*KEYS), lambda: len(office.begun) == 2, 10)
    assert meter.counts == {("workqueue_adds_total", "reconcile"): 2}
    office.error = OSError("refused")
    office.gate.set()
    assert runs.wait_for_end(SECONDS) == 0
    assert runs.unfinished_seconds() == 0.0
    assert meter.counts["torchq_reconcile_total", "error"] == meter.counts["workqueue_retries_total", "reconcile"] == 2
    office.error = None
    office.clock.step(1)
    office.work.register(registration("w1", 4))
    runs.run_batch(office.leases(KEYS[0]), lambda: False, 10)
    until(lambda: meter.counts["torchq_reconcile_total", "success"])
    assert meter.observed["workqueue_work_duration_seconds", "reconcile"] >= 3


def test_lost_leases_are_not_run(office: Office) -> None:
    runs = office.runs(4)
    runs.run_batch([(KEYS[0], "another's token")], lambda: False, 1)
    assert runs.leases() == []


def test_no_run_begins_before_the_queues_are_rebuilt(office: Office, caplog: pytest.LogCaptureFixture) -> None:
    runs = office.runs(4)
    leases = office.leases(*KEYS)
    office.epoch = 0
    runs.run_batch(leases, lambda: False, 10)
    assert runs.leases() == []
    assert "the queues must be rebuilt first; trying again" in caplog.text


def test_two_leases_of_one_key_in_one_process_are_kept_apart(office: Office) -> None:
    runs = office.runs(2)
    first = office.leases(KEYS[0])
    runs.run_batch(first, lambda: False, 1)
    office.clock.step(20)
    office.work.register(registration("w1", 4))
    second = office.leases()
    runs.run_batch(second, lambda: False, 1)
    assert sorted(runs.leases()) == sorted(first + second)


@pytest.mark.parametrize(("expected", "traceback"), [((), True), ((KeyError,), True), ((OSError,), False)])
def test_expected_errors_are_logged_without_a_traceback(
    office: Office, caplog: pytest.LogCaptureFixture, expected: tuple[type[Exception], ...], traceback: bool
) -> None:
    office.error = OSError("the server is down")
    office.gate.set()
    runs = office.runs(1, *expected)
    runs.run_batch(office.leases(KEYS[0]), lambda: False, 1)
    assert runs.wait_for_end(SECONDS) == 0
    assert [bool(record.exc_info) for record in caplog.records] == [traceback]
    office.clock.step(0.11)
    office.error = None
    [(key, token)] = office.leases()
    assert [task.failures for task in office.work.begin([(key, token)])] == [1]


def test_lease_renewer_renews_running_leases_and_registers_free_threads(office: Office) -> None:
    runs = office.runs(3)
    [lease] = leases = office.leases(KEYS[0])
    runs.run_batch(leases, lambda: False, 1)
    stop = Stop()
    keeper = LeaseRenewer("w2", office.work, runs, pause=5.0, stop=stop, outage=OutageLog(logging.getLogger("test")))
    for _ in range(4):
        office.clock.step(10)
        assert keeper.renew() == 5.0
        assert office.work.dispatch() == 0
    assert office.work.holds(*lease)
    office.leases(*KEYS[1:])
    assert office.work.dispatch() == 0, "only the keeper's three threads count, less the busy one"
    stop.request()
    keeper.renew()
    office.work.finish(*lease, requeue_after=0)
    assert office.work.dispatch() == 0, "a stopping worker gets no more keys"


def test_hanging_run_loses_its_lease_and_its_fence(office: Office, caplog: pytest.LogCaptureFixture) -> None:
    runs = TaskRunner(office.work, office.reconcile, 2, outage=OutageLog(log), longest=120.0, clock=office.clock)
    [lease] = leases = office.leases(KEYS[0])
    runs.run_batch(leases, lambda: False, 1)
    stop = Stop()
    keeper = LeaseRenewer("w1", office.work, runs, pause=5.0, stop=stop, outage=OutageLog(log))
    for _ in range(12):
        office.clock.step(10)
        keeper.renew()
        assert office.work.holds(*lease)
    for _ in range(3):
        office.clock.step(10)
        keeper.renew()
    [(key, token)] = office.leases()
    assert key == KEYS[0]
    assert not office.work.holds(*lease)
    assert [task.key for task in office.work.begin([(key, token)])] == [key]
    assert len([line for line in caplog.messages if "hangs" in line]) == 1
    assert not stop()


def test_worker_stops_when_all_its_threads_hang(office: Office) -> None:
    runs = TaskRunner(office.work, office.reconcile, 2, outage=OutageLog(log), longest=120.0, clock=office.clock)
    stop = Stop()
    keeper = LeaseRenewer("w1", office.work, runs, pause=5.0, stop=stop, outage=OutageLog(log))
    begun = []
    for key in KEYS[:2]:
        runs.run_batch(office.leases(key), lambda: False, 1)
        begun.append(office.clock())
        office.clock.step(10)
    while office.clock() < begun[1] + 120:
        keeper.renew()
        assert not stop()
        office.clock.step(10)
    office.clock.step(1)
    keeper.renew()
    assert stop()


def test_outage_is_logged_at_its_start_every_minute_and_at_its_end(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    outage = OutageLog(logging.getLogger("test"), clock)
    caplog.set_level(logging.INFO)
    outage.report_recovery()
    for _ in range(130):
        outage.report_failure(errors.StoreUnreachable("Redis is down"))
        clock.step(1)
    outage.report_recovery()
    outage.report_recovery()
    down = "Redis is down; trying again"
    assert caplog.messages == [down, down, down, "over after 130 s: Redis is down"]


def test_failure_log_counts_repeated_reasons(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    complaints = FailureLog(logging.getLogger("test"), 10, clock)
    for number in range(25):
        complaints.report(f"key-{number}", "no server")
        clock.step(1)
    complaints.report("key-x", "another reason")
    assert caplog.messages == [
        "key-0: no server; it will be tried again",
        "key-10: no server; it will be tried again (9 more like it)",
        "key-20: no server; it will be tried again (9 more like it)",
        "key-x: another reason; it will be tried again",
    ]
