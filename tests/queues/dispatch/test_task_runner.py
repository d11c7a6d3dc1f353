"""The threads of a worker process, on the queue in memory."""

import logging
import threading
from collections.abc import Callable, Iterator

import pytest

from crds.keys import JobKey
from kube.stop import Stop
from queues import errors
from queues.dispatch.lease_renewer import LeaseRenewer
from queues.dispatch.task_runner import TaskRunner
from queues.redis.log_throttle import FailureLog, Outage
from queues.values import Offer, Task
from tests.doubles.memory_work import MemoryWork
from tests.queues.dispatch.conftest import Clock
from tests.support.waiting import SECONDS, until

log = logging.getLogger("test")
KEYS = [JobKey("team", f"job-{number}", "uid") for number in range(4)]


class Office:
    """A work queue, and a reconcile that waits until it is let go."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.epoch = 1
        self.work = MemoryWork(self.clock, lambda: self.epoch, lambda _: None)
        self.work.register("w1", len(KEYS))
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
            self.work, self.reconcile, threads, outage=Outage(logging.getLogger("test")), expected=expected
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


def test_what_has_not_started_at_a_stop_is_given_back(office: Office) -> None:
    runs = office.runs(2)
    leases = office.leases(*KEYS)
    runs.run_batch(leases, lambda: len(office.begun) == 2, 10)
    assert sorted(runs.leases()) == sorted(leases[:2])
    assert office.work.dispatch() == 2, "the other two are ready again"
    office.gate.set()
    assert runs.wait_for_end(SECONDS) == 0


def test_patience_with_busy_threads_ends(office: Office) -> None:
    runs = office.runs(1)
    runs.run_batch(office.leases(*KEYS), lambda: False, 0.05)
    until(lambda: office.begun == KEYS[:1])
    assert office.work.dispatch() == 3


def test_lost_leases_are_not_run(office: Office) -> None:
    runs = office.runs(4)
    runs.run_batch([(KEYS[0], "another's token")], lambda: False, 1)
    assert runs.leases() == []


def test_nothing_is_begun_without_an_epoch(office: Office, caplog: pytest.LogCaptureFixture) -> None:
    runs = office.runs(4)
    leases = office.leases(*KEYS)
    office.epoch = 0
    runs.run_batch(leases, lambda: False, 10)
    assert runs.leases() == []
    assert "the queues must be rebuilt first; trying again" in caplog.text


def test_the_same_key_twice_in_one_process_is_two_leases(office: Office) -> None:
    runs = office.runs(2)
    first = office.leases(KEYS[0])
    runs.run_batch(first, lambda: False, 1)
    office.clock.step(20)
    office.work.register("w1", 4)
    second = office.leases()
    runs.run_batch(second, lambda: False, 1)
    assert sorted(runs.leases()) == sorted(first + second)


@pytest.mark.parametrize(("expected", "traceback"), [((), True), ((KeyError,), True), ((OSError,), False)])
def test_expected_errors_are_one_line(
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


def test_the_keeper_renews_what_runs_and_registers(office: Office) -> None:
    runs = office.runs(3)
    [lease] = leases = office.leases(KEYS[0])
    runs.run_batch(leases, lambda: False, 1)
    stop = Stop()
    keeper = LeaseRenewer("w2", office.work, runs, pause=5.0, stop=stop, outage=Outage(logging.getLogger("test")))
    for _ in range(4):
        office.clock.step(10)
        assert keeper.renew() == 5.0
        assert office.work.dispatch() == 0
    assert office.work.holds(*lease)
    office.leases(*KEYS[1:])
    assert office.work.dispatch() == 0, "only the keeper's three threads count, less the one that runs"
    stop.requested = True
    keeper.renew()
    office.work.finish(*lease, requeue_after=0)
    assert office.work.dispatch() == 0, "a stopping worker gets nothing more"


def test_a_run_that_hangs_loses_its_key_and_may_do_nothing_more(
    office: Office, caplog: pytest.LogCaptureFixture
) -> None:
    runs = TaskRunner(office.work, office.reconcile, 2, outage=Outage(log), longest=120.0, clock=office.clock)
    [lease] = leases = office.leases(KEYS[0])
    runs.run_batch(leases, lambda: False, 1)
    stop = Stop()
    keeper = LeaseRenewer("w1", office.work, runs, pause=5.0, stop=stop, outage=Outage(log))
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


def test_a_worker_of_which_every_thread_hangs_ends(office: Office) -> None:
    runs = TaskRunner(office.work, office.reconcile, 2, outage=Outage(log), longest=120.0, clock=office.clock)
    stop = Stop()
    keeper = LeaseRenewer("w1", office.work, runs, pause=5.0, stop=stop, outage=Outage(log))
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


def test_an_outage_is_told_when_it_begins_every_minute_and_when_it_ends(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    outage = Outage(logging.getLogger("test"), clock)
    caplog.set_level(logging.INFO)
    outage.over()
    for _ in range(130):
        outage.met(errors.StoreUnreachable("Redis is down"))
        clock.step(1)
    outage.over()
    outage.over()
    down = "Redis is down; trying again"
    assert caplog.messages == [down, down, down, "over after 130 s: Redis is down"]


def test_complaints_of_one_reason_are_counted(caplog: pytest.LogCaptureFixture) -> None:
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
