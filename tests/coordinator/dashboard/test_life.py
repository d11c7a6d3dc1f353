"""The life of a job as a bar in time."""

from typing import Any

import pytest

from coordinator.dashboard import life
from coordinator.dashboard.life import HELD, RAN, RESIZE, RESTART, SUSPENDED, WAITED, Life
from crds import timestamps
from tests.coordinator.dashboard.jobs.scene import NOW, job


def at(minute: float) -> str:
    return timestamps.format_time(NOW - 3600 + 60 * minute)


def hold(start: float, end: float, ended: str, running: float | None = None, **more: Any) -> dict[str, Any]:
    times = {"from": at(start), "to": at(end)} | ({} if running is None else {"running": at(running)})
    return {"number": 1, "queue": "a", "attempt": 1, "ended": ended, **times, **more}


def drawn(found: Life | None) -> list[tuple[str, float, float, float]]:
    assert found is not None
    return [(each.kind, each.left, each.width, each.height) for each in found.spans]


def test_a_job_that_waited_held_room_and_ran() -> None:
    admission = {"admittedAt": at(15), "running": at(30), "workers": 4}
    found = life.of_job(job(status={"phase": "Running", "admission": admission}), NOW)
    assert drawn(found) == [(WAITED, 0.0, 250.0, 0.1), (HELD, 250.0, 250.0, 1.0), (RAN, 500.0, 500.0, 1.0)]
    assert found is not None
    assert (found.summary, found.end, found.spans[-1].end) == ("waited 15m, held room 15m, ran 30m", "", "")


def test_the_height_is_the_workers_and_marks_are_resizes_and_new_admissions() -> None:
    holds = [hold(0, 10, "Suspended", running=0, workers=2), hold(20, 30, "Resized", running=20, workers=4)]
    status = {"holds": holds, "phase": "Running", "admission": {"admittedAt": at(20), "running": at(20), "workers": 8}}
    status["resized"] = {"at": at(30)}
    found = life.of_job(job(status=status), NOW)
    assert found is not None
    assert [(each.kind, each.height, each.workers) for each in found.spans] == [
        (RAN, 0.25, 2),
        (SUSPENDED, 0.1, 0),
        (RAN, 0.5, 4),
        (RAN, 1.0, 8),
    ]
    assert [(each.kind, each.at, each.text) for each in found.marks] == [
        (RESTART, at(20), "admitted again after Suspended"),
        (RESIZE, at(30), "from 4 to 8 workers"),
    ]


def suspended(status: str, minute: float) -> list[dict[str, str]]:
    return [{"type": "Suspended", "status": status, "lastTransitionTime": at(minute)}]


@pytest.mark.parametrize(
    ("holds", "conditions", "spans"),
    [
        ([hold(6, 12, "Suspended", running=6)], suspended("True", 13), [(WAITED, 0), (RAN, 100), (SUSPENDED, 200)]),
        (
            [hold(6, 12, "Suspended", running=6)],
            suspended("False", 30),
            [(WAITED, 0), (RAN, 100), (SUSPENDED, 200), (WAITED, 500)],
        ),
        ([], suspended("True", 30), [(WAITED, 0), (SUSPENDED, 500)]),
        ([], suspended("True", 0), [(SUSPENDED, 0)]),
        (
            [hold(0, 6, "Suspended", running=0), hold(12, 18, "Suspended", running=12)],
            suspended("False", 30),
            [(RAN, 0), (SUSPENDED, 100), (RAN, 200), (SUSPENDED, 300), (WAITED, 500)],
        ),
        ([hold(0, 6, "Preempted", running=0)], suspended("False", 0), [(RAN, 0), (WAITED, 100)]),
    ],
)
def test_a_suspended_job_does_not_wait(holds: list[Any], conditions: list[Any], spans: list[tuple[str, int]]) -> None:
    found = drawn(life.of_job(job(status={"holds": holds, "phase": "Queued", "conditions": conditions}), NOW))
    assert [(kind, left) for kind, left, _, _ in found] == spans
    assert sum(width for _, _, width, _ in found) == 1000


def test_a_finished_job_ends_with_its_end_and_counts_its_restarts() -> None:
    running = {"type": "Running", "status": "True", "lastTransitionTime": at(40)}
    status = {
        "phase": "Failed",
        "completionTime": at(60),
        "holds": [hold(0, 60, "Failed", running=10)],
        "restartCount": 1,
        "restartGeneration": 2,
        "conditions": [running],
    }
    found = life.of_job(job(status=status), NOW + 1e6)
    assert drawn(found) == [(HELD, 0.0, 166.7, 1.0), (RAN, 166.7, 833.3, 1.0)]
    assert found is not None
    assert found.end == at(60)
    assert [(each.kind, each.left, each.text) for each in found.marks] == [
        (RESTART, 666.7, "runs again, after 2 restarts in all")
    ]


def test_a_life_that_goes_on_is_drawn_again_in_steps_only() -> None:
    running = job(status={"phase": "Running", "admission": {"admittedAt": at(1), "running": at(2)}})
    pictures = {life.of_job(running, NOW + second) for second in range(600)}
    assert 10 < len(pictures) < 45
    assert {round(sum(drawn(each)[-1][1:3])) for each in pictures} == {1000}


@pytest.mark.parametrize(
    "holds",
    [
        [hold(10, 5, "x"), hold(0, 100, "y"), {"from": "then"}, {}],
        [hold(30, 40, "b", workers=10**9), hold(0, 35, "a", running=50)],
    ],
)
def test_times_that_contradict_each_other_stay_in_the_bar(holds: list[Any]) -> None:
    found = life.of_job(job(status={"holds": holds, "phase": "Queued"}), NOW)
    assert found is not None
    assert all(0 <= each.left <= 1000 and 0 <= each.width <= 1000 - each.left + 0.1 for each in found.spans)


def test_the_history_tells_the_same_life() -> None:
    holds = [hold(10, 60, "Succeeded", running=20, workers=4)]
    status = {"phase": "Succeeded", "completionTime": at(60), "holds": holds}
    told = {"submitted": at(0), "ended": at(60), "holds": holds}
    assert life.of_history(told, NOW) == life.of_job(job(status=status), NOW)
    assert life.of_history({}, NOW) is None
