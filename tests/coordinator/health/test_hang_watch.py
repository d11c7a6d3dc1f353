"""The leader's looks at the reports of its jobs, and what the leader and a worker write, on an embedded API server."""

from dataclasses import replace
from typing import Any

import pytest

from coordinator.health.hang_watch import HangWatch
from coordinator.health.step_watch import LONGEST_BREAK
from coordinator.leader.status_writer import REFUSED_SECONDS
from coordinator.reports.report_values import ArrivedReport, Progress, Report
from crds.api_resources import EVENTS
from crds.keys import JobKey
from crds.torchjob.torchjob import TorchJob
from kube import errors
from queues.errors import StoreUnreachable
from tests.doubles.memory_reports import MemoryReports
from tests.support.coordinator.desk import Clock, Desk

LOOK_SECONDS = HangWatch.seconds
HEALTH = {"hangTimeoutSeconds": 60, "firstStepSeconds": 300}


class Training:
    """A running job with a master and a worker, its reports, and the leader that looks at them."""

    def __init__(self, desk: Desk, namespace: str, clock: Clock) -> None:
        self.desk, self.clock = desk, clock
        desk.queue("a")
        desk.begin()
        self.key = desk.submit("train", namespace, "a", health=HEALTH)
        self.run_pods()
        self.reports = MemoryReports(clock)
        self.leader = self.new_leader()
        self.step = 0

    def run_pods(self) -> None:
        self.desk.until(lambda: len(self.desk.pods_of(self.key)) == 2)
        self.desk.move(self.key, "Running")
        self.desk.until(lambda: self.desk.phase(self.key) == "Running")

    def new_leader(self, **parts: Any) -> HangWatch:
        desk, usual = self.desk, {"clock": self.clock, "elapsed": self.clock}
        return HangWatch(desk.statuses.jobs, desk.watches, desk.open(), self.reports, **(usual | parts))

    def look(self, seconds: float = LOOK_SECONDS, *pods: str, leader: HangWatch | None = None) -> TorchJob:
        """Let time pass. The leader looks at its usual interval, and the named pods make a step before each look."""
        for _ in range(round(seconds / LOOK_SECONDS)):
            self.clock.step(LOOK_SECONDS)
            self.step += 1
            run = self.job.status.run
            told = (Report(pod=f"train-{pod}-0", step=self.step, run=run) for pod in pods)
            self.reports.keep(ArrivedReport(job=self.key, report=report) for report in told)
            self.settle()
            (leader or self.leader).look()
            self.write()
        self.settle()
        return self.job

    def write(self) -> None:
        """Write the statuses that the leader has put."""
        self.desk.statuses.serve(self.desk.statuses.jobs)

    def settle(self) -> None:
        """Run the worker until no work is left and the caches are up to date."""
        self.desk.until(lambda: self.is_seen() and not self.desk.term.step() and not self.desk.run_worker())

    def is_seen(self) -> bool:
        job, seen = self.job, self.desk.watches.job(self.key)
        pods = [pod for pod in self.desk.watches.job_pods(self.key) if pod.running]
        return seen is not None and seen.version == job.metadata.resource_version and len(pods) == 2

    @property
    def job(self) -> TorchJob:
        return self.desk.job(self.key)

    def events(self) -> list[str]:
        listed = self.desk.cluster.list(EVENTS, self.key.namespace).items
        return sorted(each["reason"] for each in listed if each["involvedObject"]["uid"] == self.key.uid)

    def reason(self) -> str:
        return next(each.reason for each in self.job.status.conditions if each.type == "Running")


@pytest.fixture
def training(desk: Desk, namespace: str, clock: Clock) -> Training:
    found = Training(desk, namespace, clock)
    found.look(20, "master", "worker")
    return found


def test_hang_is_written_once_reported_and_removed_when_a_step_is_made(training: Training) -> None:
    assert training.look(55).status.hang is None
    hang = training.look(5).status.hang
    assert hang is not None
    assert (hang.behind, hang.silent, hang.blamed) == (("train-master-0", "train-worker-0"),) * 2 + ("",)
    assert (training.reason(), training.events()) == ("Hanging", ["Hanging"])
    writes = training.desk.watching.calls["patch TorchJob"]
    assert training.look(60).status.hang == hang
    assert training.desk.watching.calls["patch TorchJob"] == writes
    assert training.look(5, "worker").status.hang is None
    assert (training.reason(), training.events()) == ("Running", ["Hanging"])
    assert training.look(60).status.hang is not None
    assert training.events() == ["Hanging"] * 2


def test_a_moving_percentage_is_progress(training: Training) -> None:
    for percent in (1, 2, 3, 3):
        for pod in ("train-master-0", "train-worker-0"):
            report = Report(pod=pod, step=None, progress=Progress(percent=percent), run=training.job.status.run)
            training.reports.keep([ArrivedReport(job=training.key, report=report)])
        assert training.look(55 if percent < 3 else 30).status.hang is None
    assert training.look(30).status.hang is not None


def test_reports_and_the_first_step_are_noted_once_in_each_run(training: Training) -> None:
    told = training.job.status.reported
    assert told is not None
    assert (told.run, told.moved) == (training.job.status.run, True)
    assert training.desk.watching.calls["patch TorchJob"] == 2
    training.look(30, "master", "worker")
    assert training.desk.watching.calls["patch TorchJob"] == 2


def test_restart_is_counted_once_and_without_a_report_since_then_no_other_follows(training: Training) -> None:
    training.desk.change(training.key, health={**HEALTH, "onHang": "Restart"})
    training.look(20, "master", "worker")
    training.desk.until(training.is_seen)
    for _ in range(12):
        training.clock.step(LOOK_SECONDS)
        training.leader.look()
        training.write()
    training.desk.until(lambda: training.job.status.restart_count == 1)
    assert training.job.status.hang is None
    training.run_pods()
    training.settle()
    assert training.look(600).status.restart_count == 1
    assert training.events() == ["Hanging", "Restarting"]


def test_flush_or_another_leader_begins_the_time_anew(training: Training) -> None:
    training.look(55)
    training.reports.lose()
    training.desk.begin(2)
    assert training.look(55).status.hang is None
    later = training.new_leader()
    assert training.look(60, leader=later).status.hang is None
    assert training.look(5, leader=later).status.hang is not None


@pytest.mark.parametrize("away", ["redis", "door", "leader"])
def test_time_in_which_no_report_could_be_read_begins_the_time_anew(training: Training, away: str) -> None:
    training.look(55)
    match away:
        case "redis":
            training.leader.reports = Away()
            training.look(5)
            training.leader.reports = training.reports
        case "door":
            training.leader.is_open = lambda: False
            training.look(5)
            training.leader.is_open = lambda: True
        case "leader":
            training.clock.step(LONGEST_BREAK)
    assert training.look(60).status.hang is None
    assert training.look(5).status.hang is not None


class Away(MemoryReports):
    """A store of reports that cannot be reached."""

    def __init__(self) -> None:
        super().__init__(float)

    def read(self, keys: Any) -> Any:  # noqa: ARG002
        raise StoreUnreachable("no answer")


def test_job_that_has_changed_since_it_was_judged_is_judged_again(training: Training) -> None:
    training.look(55)
    training.clock.step(LOOK_SECONDS)
    training.desk.watches.jobs.stop()
    training.desk.change(training.key, health={"hangTimeoutSeconds": 600})
    training.leader.look()
    training.write()
    assert training.job.status.hang is None


@pytest.mark.parametrize(("error", "pause"), [(errors.Forbidden, REFUSED_SECONDS), (errors.ServerError, LOOK_SECONDS)])
def test_write_that_fails_is_tried_again(
    training: Training, error: type[Exception], pause: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise error("not now")

    with monkeypatch.context() as patched:
        patched.setattr(training.desk.statuses, "cluster", type("Refusing", (), {"patch": staticmethod(fail)})())
        assert training.look(60).status.hang is None
    assert training.look(pause).status.hang is not None


def test_a_job_that_causes_an_error_stops_no_other(
    training: Training, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    view = training.desk.watches.job(training.key)
    assert view is not None
    other = replace(view, key=JobKey(view.key.namespace, "other", "u2"))
    pods_of = training.desk.watches.job_pods

    def fail(key: JobKey) -> Any:
        if key == other.key:
            raise ValueError("odd")
        return pods_of(key)

    watched = HangWatch._jobs
    monkeypatch.setattr(training.desk.watches, "job_pods", fail)
    monkeypatch.setattr(HangWatch, "_jobs", lambda self: iter([other, *watched(self)]))
    assert training.look(60).status.hang is not None
    assert "/other is skipped after an unforeseen error: ValueError: odd" in caplog.text


def test_job_whose_health_is_not_watched_costs_no_reading(desk: Desk, namespace: str, clock: Clock) -> None:
    desk.begin()
    key = desk.submit("train", namespace, "a")
    desk.until(lambda: desk.watches.job(key))
    assert desk.watches.job(key).health is None  # type: ignore[union-attr]
    leader = HangWatch(desk.statuses.jobs, desk.watches, desk.open(), Away(), clock=clock, elapsed=clock)
    leader.look()
    assert not len(desk.statuses.jobs)
