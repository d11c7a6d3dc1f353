"""Growths that make a job slower, as the reports of its pods show."""

import pytest

from coordinator.cache.views import JobView
from coordinator.elastic.gains import FRESH_SECONDS, LOOKS, SETTLE_SECONDS, Gains
from coordinator.reports.report_values import ArrivedReport, Reading, Report
from tests.coordinator.elastic.test_elastic_jobs import elastic
from tests.doubles.memory_reports import MemoryReports
from tests.support.clock import Clock
from tests.support.coordinator.builders import KEY


class Training:
    """A job whose pods report how many samples each pod trains in a second."""

    def __init__(self) -> None:
        self.clock, self.gains = Clock(), Gains()
        self.reports = MemoryReports(self.clock)
        self.resized_at = self.clock()

    def run(
        self, workers: int, *rates: Reading | None, seconds: float = 120.0, restarts: int = 0, idle: int = 2
    ) -> None:
        """Resize the job, and let its pods report for a while."""
        self.resized_at = self.clock()
        for _ in range(int(seconds / 10)):
            self.clock.step(10)
            pods = [Report(pod=f"w-{index}", step=1, samples_per_second=rate) for index, rate in enumerate(rates)]
            self.reports.keep(ArrivedReport(job=KEY, report=report) for report in pods)
            self.look(self.view(workers, restarts, idle))

    def view(self, workers: int, restarts: int = 0, idle: int = 2) -> JobView:
        return elastic(workers, idle=idle, least_gain=10, restarts=restarts, resized_at=self.resized_at)

    def look(self, view: JobView) -> None:
        self.gains.look({KEY: view}, self.reports.read([KEY]))

    @property
    def goes_back_to(self) -> int:
        gain = self.gains.small.get(KEY)
        return 0 if gain is None else gain.workers


@pytest.mark.parametrize(
    ("after", "goes_back_to"),
    [
        pytest.param(89.0, 4, id="11 % slower"),
        pytest.param(91.0, 0, id="9 % slower"),
        pytest.param(120.0, 0, id="faster"),
    ],
)
def test_a_job_goes_back_if_its_pods_became_slower_than_allowed(after: float, goes_back_to: int) -> None:
    training = Training()
    training.run(4, 100.0, 100.0)
    training.run(6, after, after, after)
    assert training.goes_back_to == goes_back_to


def test_a_speed_that_is_no_number_is_not_computed_with() -> None:
    training = Training()
    training.run(4, 100.0, "NaN")
    training.run(6, 89.0, "inf", "-1")
    assert training.goes_back_to == 4


def test_it_stays_there_until_a_restart() -> None:
    training = Training()
    training.run(4, 100.0)
    training.run(6, 50.0)
    training.run(4, 100.0)
    assert training.goes_back_to == 4
    training.run(4, 100.0, restarts=1)
    assert training.goes_back_to == 0


@pytest.mark.parametrize(
    "seconds",
    [pytest.param(SETTLE_SECONDS, id="too early"), pytest.param(SETTLE_SECONDS + 10 * (LOOKS - 2), id="too few")],
)
def test_the_first_reports_after_a_growth_do_not_decide(seconds: float) -> None:
    training = Training()
    training.run(4, 100.0)
    training.run(6, 10.0, seconds=seconds)
    assert training.goes_back_to == 0


def test_without_reports_of_both_sizes_nothing_is_judged() -> None:
    training = Training()
    training.run(4, None)
    training.run(6, 10.0)
    assert training.goes_back_to == 0
    training = Training()
    training.run(4, 100.0)
    training.run(6)
    training.clock.step(FRESH_SECONDS)
    training.look(training.view(6))
    assert training.goes_back_to == 0


def test_workers_that_the_owner_wants_are_not_judged() -> None:
    training = Training()
    training.run(4, 100.0, idle=0)
    training.run(6, 10.0, idle=0)
    assert training.goes_back_to == 0


def test_a_job_that_is_not_judged_any_more_is_forgotten() -> None:
    training = Training()
    training.run(4, 100.0)
    training.run(6, 50.0)
    training.gains.look({}, {})
    assert training.goes_back_to == 0
