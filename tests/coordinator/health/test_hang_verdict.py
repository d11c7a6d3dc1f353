"""The watch over the steps of a job under a stepped clock, and the verdict on it."""

from dataclasses import dataclass, field
from pathlib import Path

import pytest

from coordinator.health import hang_verdict, step_watch
from coordinator.health.hang_verdict import HangVerdict
from coordinator.health.step_watch import LONGEST_BREAK, Look, StepWatch
from coordinator.reports.report_values import ArrivedReport, JobReports, Report
from crds.keys import JobKey
from crds.timestamps import parse
from crds.torchjob.jobspec import Health
from crds.torchjob.status import Hang, Reported
from tests.doubles.memory_reports import MemoryReports

KEY = JobKey("team", "digits", "1")
RULES = Health(hang_timeout_seconds=60, first_step_seconds=300)
A, B, C = "a", "b", "c"
LONG_AGO = parse("2026-01-01T00:00:00Z")


@dataclass
class Watch:
    """A job at which the leader looks every 5 s. The pods of the job report into a store with its own clock."""

    running: tuple[str, ...] = (A, B)
    known: Reported | None = None
    run: str = "first"
    now: float = 1000.0
    redis_clock: float = 1.7e9
    missed: bool = False
    """Whether a change was missed since the last look."""
    watch: StepWatch | None = None
    reports: MemoryReports = field(init=False)

    def __post_init__(self) -> None:
        self.reports = MemoryReports(lambda: self.redis_clock)

    def report(self, step: int, *pods: str) -> "Watch":
        told = (Report(pod=pod, step=step, run=self.run) for pod in pods or self.running)
        self.reports.keep(ArrivedReport(job=KEY, report=report) for report in told)
        return self

    def look(self, seconds: float = 0.0) -> "Watch":
        """Let time pass. The leader looks every 5 s and at the end."""
        end = self.now + seconds
        while self.now < end:
            self.redis_clock += 5.0
            self.now = min(end, self.now + 5.0)
            self._look()
        if not seconds:
            self._look()
        return self

    def _look(self) -> None:
        found = self.reports.read([KEY]).get(KEY, JobReports(read_at=0.0, pods={}))
        self.watch = step_watch.look(
            self.watch, self.run, self.running, found.pods, self.known, self.now, continues=not self.missed
        )
        self.missed = False

    def trained(self) -> "Watch":
        """Return this watch after its job has made two steps."""
        return self.look().report(1).look(5).report(2).look(5)

    def verdict(self, rules: Health = RULES) -> HangVerdict | None:
        assert self.watch is not None
        return hang_verdict.judge(self.watch, rules, self.now)


def test_job_hangs_when_no_step_has_moved_for_the_timeout() -> None:
    job = Watch().trained()
    assert job.look(55).verdict() is None
    assert job.look(5).verdict() == HangVerdict(60, behind=(A, B), silent=(A, B))
    assert job.verdict(Health(hang_timeout_seconds=120)) is None
    assert job.verdict(Health()) is None


def test_pods_behind_and_silent_pods_are_named() -> None:
    job = Watch(running=(A, B, C)).trained().report(3, B, C).look(5)
    job.look(30).report(3, B, C).look(30)
    assert job.verdict() == HangVerdict(60, behind=(A,), silent=(A,), blamed=A)
    alone = Watch(running=(A,)).trained().look(60)
    assert alone.verdict() == HangVerdict(60, behind=(A,), silent=(A,))


def test_step_of_any_pod_ends_the_hang_and_begins_the_time_anew() -> None:
    job = Watch().trained().look(55).report(3, B).look(5)
    assert job.verdict() is None
    assert job.look(60).verdict() is not None


def test_job_that_never_reports_never_hangs() -> None:
    assert Watch().look(100_000).verdict() is None
    earlier = Watch(run="earlier").report(7)
    earlier.run = "first"
    assert earlier.look(100_000).verdict() is None


def test_report_of_the_same_step_is_no_step() -> None:
    job = Watch().trained()
    for _ in range(12):
        job.report(2).look(5)
    assert job.verdict() == HangVerdict(60, behind=(A, B))


def test_first_step_after_a_start_has_its_own_limit() -> None:
    job = Watch().look().report(0).look(295)
    assert job.verdict() is None
    assert job.look(5).verdict() is not None
    first = Watch().look().report(500).look(5).report(501).look(65)
    assert first.verdict() is not None, "the first report tells where the job continues, only the second is a step"


def test_each_run_begins_anew_and_forgets_the_reports_before() -> None:
    job = Watch().trained().look(50)
    job.run = "second"
    assert job.look(100_000).verdict() is None
    job.report(1).look(295)
    assert job.verdict() is not None


def test_pod_that_joins_begins_the_time_of_the_first_step_anew() -> None:
    job = Watch().trained().look(50)
    job.running = (A, B, C)
    job.look(5).report(50).look(290)
    assert job.verdict() is None
    assert job.look(10).verdict() is not None


def test_pod_that_has_ended_is_not_judged() -> None:
    job = Watch(running=(A, B)).trained()
    job.running = (A,)
    for step in range(3, 30):
        job.report(step, A).look(5)
    assert job.verdict() is None


def test_job_whose_reporting_pods_have_all_ended_has_to_report_again() -> None:
    job = Watch(running=(A, B)).trained()
    job.running = ()
    assert job.look(100_000).verdict() is None
    job.running = (C,)
    assert job.look(100_000).verdict() is None
    later = Watch(running=(C,), known=Reported(run="first", moved=True)).report(9, A).look()
    assert later.look(100_000).verdict() is None
    assert later.report(1).look(5).report(2).look(65).verdict() is not None


@pytest.mark.parametrize("known", [Reported(run="first", moved=True), Reported(run="first", moved=False)])
def test_leader_that_comes_later_begins_the_time_anew_and_knows_that_steps_were_made(known: Reported) -> None:
    later = Watch(known=known).report(9).look()
    limit = 60 if known.moved else 300
    assert later.look(limit - 5).verdict() is None
    assert later.look(5).verdict() == HangVerdict(limit, behind=(A, B), silent=(A, B))
    other = Watch(known=Reported(run="earlier", moved=True)).look()
    assert other.look(100_000).verdict() is None


def test_leader_that_comes_later_knows_reports_of_this_run_that_no_leader_has_noticed() -> None:
    later = Watch().report(9).look()
    assert later.look(295).verdict() is None
    assert later.look(5).verdict() == HangVerdict(300, behind=(A, B), silent=(A, B))


def test_leader_that_has_missed_something_begins_the_time_anew_and_knows_who_has_reported() -> None:
    job = Watch(running=(A, B)).trained().look(55)
    job.reports.lose()
    job.missed = True
    assert job.look(60).verdict() is None
    for step in range(20, 40):
        job.report(step, A).look(5)
    found = job.verdict()
    assert found is not None
    assert (found.blamed, found.silent) == (B, (B,))


def test_job_that_has_stopped_to_report_hangs_also_if_its_reports_were_lost() -> None:
    lost = Watch(known=Reported(run="first", moved=True)).look()
    assert lost.look(55).verdict() is None
    assert lost.look(5).verdict() == HangVerdict(60)


def test_reports_that_expire_are_no_news() -> None:
    job = Watch().trained()
    job.reports.lose()
    assert job.look(60).verdict() == HangVerdict(60, behind=(A, B), silent=(A, B))


def test_clock_of_redis_does_not_matter() -> None:
    job = Watch().trained()
    job.redis_clock += 1e6
    assert job.report(3).look(5).verdict() is None
    job.redis_clock -= 2e6
    assert job.look(60).verdict() is not None


def test_job_of_which_no_pod_runs_does_not_hang() -> None:
    assert Watch(running=(), known=Reported(run="first", moved=True)).look().look(600).verdict() is None


def test_page_has_the_defaults() -> None:
    page = (Path(__file__).parents[3] / "docs" / "elastic.md").read_text()
    rows = [[cell.strip() for cell in line.split("|")[1:3]] for line in page.splitlines() if line.startswith("|")]
    expected = {str(each.alias): str(each.default) for each in Health.model_fields.values()}
    assert {name: default for name, default in rows if name in expected} == expected


class TestOnePodToBlame:
    def test_pod_whose_step_stands_while_others_move_is_blamed_alone(self) -> None:
        job = Watch(running=(A, B, C)).trained()
        for step in range(3, 15):
            job.report(step, A, C).report(2, B).look(5)
        assert job.verdict() is None, "the other pods have made steps without this pod for only 55 s"
        assert job.report(15, A, C).report(2, B).look(5).verdict() == HangVerdict(65, behind=(B,), blamed=B)

    def test_pod_is_not_blamed_because_another_one_is_first_to_go_on_after_a_pause(self) -> None:
        job = Watch().trained().look(55).report(3, A).look(5)
        for step in range(4, 12):
            job.report(step, A).look(5)
        assert job.verdict() is None
        assert job.report(12, A, B).look(5).verdict() is None

    def test_of_several_the_one_that_stands_longest_is_blamed(self) -> None:
        job = Watch(running=(A, B, C)).trained().report(3, A, C).look(5)
        for step in range(4, 20):
            job.report(step, A).look(5)
        assert job.verdict() == HangVerdict(85, behind=(B, C), silent=(B, C), blamed=B)

    def test_pod_that_has_never_reported_is_not_blamed(self) -> None:
        job = Watch(running=(A, B))
        job.look()
        for step in range(100):
            job.report(step, A).look(5)
        assert job.verdict() is None

    def test_pod_that_stands_at_its_first_step_has_the_time_of_a_first_step(self) -> None:
        job = Watch(running=(A, B)).look().report(0)
        for step in range(1, 60):
            job.report(step, A).look(5)
        assert job.verdict() is None
        assert job.report(60, A).look(5).verdict() == HangVerdict(295, behind=(B,), silent=(B,), blamed=B)


class TestEndOfAHang:
    def over(self, job: Watch, rules: Health = RULES, **hang: str) -> bool:
        assert job.watch is not None
        found = Hang(since=LONG_AGO, run="first", **hang)
        return hang_verdict.is_over(job.watch, found, job.verdict(rules))

    def test_hang_is_over_once_a_step_moves(self) -> None:
        job = Watch().trained().look(70)
        assert not self.over(job)
        assert self.over(job.report(3, A).look(5))

    def test_hang_of_one_pod_is_over_once_its_own_step_moves(self) -> None:
        job = Watch(known=Reported(run="first", moved=True)).report(9).look()
        assert not self.over(job.report(10, A).look(5), blamed=B)
        assert self.over(job.report(10, B).look(5), blamed=B)

    def test_later_leader_leaves_a_hang_until_it_sees_a_step(self) -> None:
        job = Watch(known=Reported(run="first", moved=True)).report(9).look(30)
        assert not self.over(job)
        assert self.over(job.report(10, A).look(5))

    def test_hang_is_over_if_its_finder_sees_a_longer_limit(self) -> None:
        job = Watch(known=Reported(run="first", moved=True)).report(9).look(70)
        assert job.watch is not None
        assert not self.over(job, Health(hang_timeout_seconds=120))
        job.watch = step_watch.replace(job.watch, hung=True)
        assert self.over(job, Health(hang_timeout_seconds=120))


@pytest.mark.parametrize(
    ("before", "continues"),
    [
        (Look(100, 7), True),
        (None, False),
        (Look(100, 6), False),
        (Look(105 - LONGEST_BREAK - 1, 7), False),
        (Look(106, 7), False),
    ],
)
def test_look_continues_a_watch_of_the_same_epoch_without_a_break(before: Look | None, continues: bool) -> None:
    assert Look(105, 7).continues(before) is continues
    assert not Look(105, 0).continues(Look(100, 0))
