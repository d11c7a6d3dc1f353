"""The screen of `torchq top`, for terminals of any size."""

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coordinator.cli import job_ref
from coordinator.cli.top import screen
from coordinator.cli.top.screen import ScreenReading
from coordinator.wording import queue_columns

NOW = datetime(2026, 1, 1, tzinfo=UTC)
STATUS: dict[str, Any] = {
    "cluster": "local",
    "leader": "host-1",
    "workers": {"w1": 16},
    "jobs": {"waiting": 3, "admitted": 4},
    "rates": {"picksPerSecond": 1.5, "reconcilesPerSecond": 2.0},
    "trouble": {},
}

REPORTS = {"step": 311, "progressPercentage": 51, "estimatedRemainingSeconds": 4}


def queue(name: str, pending: int = 0, **spec: Any) -> dict[str, Any]:
    usage = {"nvidia.com/gpu": "3"}
    status = {"pending": pending, "admitted": 1, "usage": usage, "share": "50%", "target": "75%"}
    return {"metadata": {"name": name}, "spec": {"weight": 3, **spec}, "status": status}


def pick(number: int, when: str = "now") -> dict[str, Any]:
    return {
        "pick": number, "job": f"team/job-{number}", "queue": "a", "waitSeconds": 90.0, "when": when,
        "demand": {"cpu": "2"},
    }  # fmt: skip


def running(number: int) -> dict[str, Any]:
    return {
        "metadata": {"name": f"running-{number}", "namespace": "team", "uid": f"uid-{number}"},
        "spec": {"torchTaskSpecs": {"Worker": {"numTasks": 2}}},
        "status": {"phase": "Running", "startTime": "2025-12-31T23:59:00Z", "admission": {"queue": "a"}},
    }


def reading(queues: int, picks: int, trouble: dict[str, str] | None = None) -> ScreenReading:
    return ScreenReading(
        status=STATUS | {"trouble": trouble or {}},
        queues=[queue(f"team-{number}") for number in range(queues)],
        picks=[pick(number + 1) for number in range(picks)],
        jobs=[running(number) for number in range(picks)],
        training={job_ref.key(running(number)): REPORTS for number in range(picks)},
        pool={"capacity": {"nvidia.com/gpu": "8"}, "used": {"nvidia.com/gpu": "6"}},
    )


def test_memory_of_the_pool_is_readable() -> None:
    pool = {"capacity": {"memory": "131891908Ki"}, "used": {"memory": "320Mi"}}
    text = "\n".join(line.plain for line in screen.lines(ScreenReading(status=STATUS, pool=pool), NOW, 120, 24))
    assert " 320Mi/125.8Gi memory" in text


@pytest.mark.parametrize(("width", "height"), [(80, 24), (120, 30), (200, 60)])
def test_200_queues_and_the_next_picks_fit_into_the_terminal(width: int, height: int) -> None:
    lines = screen.lines(reading(200, 5), NOW, width, height)
    text = [line.plain for line in lines]
    assert len(lines) == height
    assert "on local" in text[0]
    assert "3 waiting, 4 admitted" in text[1]
    assert sum(line.startswith("team-") for line in text) == 200 - int(next(x for x in text if "more" in x).split()[0])
    assert sum("team/job-" in line for line in text) >= 3
    assert sum(line.startswith("running-") and "Running  0/2   60s      51 %, 4s to go" in line for line in text) >= 3


@pytest.mark.parametrize(
    ("reports", "said"), [({}, "-"), ({"step": 7, "pods": []}, "step 7"), ({"unknown": "no answer"}, "-")]
)
def test_training_is_its_step_or_unknown(reports: dict[str, Any], said: str) -> None:
    found = ScreenReading(status=STATUS, jobs=[running(1)], training={job_ref.key(running(1)): reports})
    [row] = [line.plain for line in screen.lines(found, NOW, 120, 24) if line.plain.startswith("running-1 ")]
    assert row.split("60s")[1].strip() == f"{said:8}  -"


def test_bars_show_share_against_target_and_gpus_against_quota() -> None:
    found = ScreenReading(status=STATUS, queues=[queue("a", quota={"nvidia.com/gpu": 6})])
    [row] = [line.plain for line in screen.lines(found, NOW, 120, 24) if line.plain.startswith("a ")]
    assert "██████░░░│░░" in row
    assert "██████░░░░░░ 3/6" in row


def test_what_does_not_answer_is_named_in_the_head() -> None:
    found = ScreenReading(status=STATUS | {"workers": None, "trouble": {"queues": "Redis does not answer"}})
    text = "\n".join(line.plain for line in screen.lines(found, NOW, 80, 24))
    assert "queues: Redis does not answer" in text
    assert "Workers: unknown" in text


def test_queues_with_jobs_come_first() -> None:
    idle = {"metadata": {"name": "idle"}, "spec": {}, "status": {"pending": 0, "admitted": 0}}
    assert [each["metadata"]["name"] for each in queue_columns.busy_first([idle, queue("a"), idle, queue("b", 2)])] == [
        "a", "b", "idle", "idle",
    ]  # fmt: skip


@settings(deadline=None)
@given(st.integers(0, 300), st.integers(0, 60), st.integers(1, 250), st.integers(0, 80), st.integers(0, 400))
def test_no_screen_is_larger_than_its_terminal(queues: int, picks: int, width: int, height: int, first: int) -> None:
    found = reading(queues, picks, {"workers": "no worker is alive"})
    lines = screen.lines(found, NOW, width, height, first)
    assert len(lines) <= height
    assert all(line.cell_len <= width for line in lines)


@settings(deadline=None)
@given(st.integers(1, 300), st.integers(0, 20), st.integers(10, 80))
def test_every_queue_can_be_scrolled_to(queues: int, picks: int, height: int) -> None:
    found = reading(queues, picks)
    last = screen.most_scrolled(found, NOW, height)
    text = [line.plain for line in screen.lines(found, NOW, 200, height, last)]
    assert any(line.startswith(f"team-{queues - 1} ") for line in text)
