"""How long the last jobs that ended held their room."""

from dataclasses import replace
from typing import Any

import pytest

from coordinator.cache import noted_jobs, views
from coordinator.cache.noted_jobs import EndedJobs
from coordinator.cache.views import JobView
from tests.coordinator.cache.test_views import stored

HELD = {"queue": "a", "attempt": 1, "epoch": 1, "charge": {"jobs": 1}}


def ended(minutes: int, admitted: str | None = "2026-01-02T03:00:00Z") -> JobView:
    """Return a job that held its room for some minutes."""
    status: dict[str, Any] = {
        "phase": "Succeeded",
        "admission": HELD | ({"admittedAt": admitted} if admitted else {}),
        "completionTime": f"2026-01-02T03:{minutes:02}:00Z",
    }
    container = {"name": "torch", "resources": {"requests": {"cpu": "1"}}}
    return views.job_view(stored({"spec": {"containers": [container]}}, status))


def test_a_job_counts_once_with_the_time_from_its_admission_to_its_end() -> None:
    jobs = EndedJobs()
    runs = replace(ended(2), ended=None, finished=False)
    jobs.note(None, runs)
    assert jobs.holds() == []
    jobs.note(runs, ended(2))
    jobs.note(ended(2), ended(2))
    jobs.note(ended(2), None)
    assert jobs.holds() == [(120, ended(2).charge)]


@pytest.mark.parametrize("admitted", [None, "2026-01-02T04:00:00Z"])
def test_an_admission_without_a_time_does_not_count_and_no_time_is_below_0(admitted: str | None) -> None:
    jobs = EndedJobs()
    jobs.note(None, ended(2, admitted))
    assert [seconds for seconds, _ in jobs.holds()] == ([] if admitted is None else [0])


def test_the_jobs_that_ended_last_count_in_whatever_order_they_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(noted_jobs, "MOST_ENDED", 2)
    jobs = EndedJobs()
    for minutes in (4, 2, 3, 1):
        jobs.note(None, ended(minutes))
    assert sorted(seconds for seconds, _ in jobs.holds()) == [180, 240]
