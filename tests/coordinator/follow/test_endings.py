"""How the state of a job ends a wait for the job."""

from typing import Any

import pytest

from coordinator.follow import endings
from coordinator.follow.endings import Goal
from crds.keys import JobKey

KEY = JobKey("team", "train", "u1")


def item(phase: str = "", reason: str = "", **status: Any) -> dict[str, Any]:
    """Return a job in a phase, with the condition of this phase."""
    conditions = [{"type": phase, "status": "True", "reason": reason, "message": f"it is {phase}"}] if phase else []
    return {
        "metadata": {"namespace": "team", "name": "train", "uid": "u1"},
        "status": {"phase": phase, "conditions": conditions, **status},
    }


@pytest.mark.parametrize(
    ("phase", "reason", "status", "code"),
    [
        ("Succeeded", "JobSucceeded", {}, 0),
        ("Failed", "BackoffLimitExceeded", {"exitCode": 137}, 137),
        ("Failed", "DeadlineExceeded", {}, None),
        ("Failed", "Cancelled", {}, None),
    ],
)
def test_an_end_has_its_reason_and_exit_code(phase: str, reason: str, status: dict[str, Any], code: int | None) -> None:
    ending = endings.judge(KEY, item(phase, reason, **status), "Finished")
    assert ending is not None
    assert (ending.reason, ending.exit_code) == (reason, code)


@pytest.mark.parametrize(
    ("phase", "reason", "goal", "outcome", "reached"),
    [
        ("", "", "Finished", None, None),
        ("Queued", "", "Running", None, None),
        ("Running", "", "Finished", None, None),
        ("Succeeded", "", "Finished", "Succeeded", True),
        ("Failed", "PodFailed", "Finished", "Failed", False),
        ("Failed", "Cancelled", "Finished", "Cancelled", False),
        ("Failed", "Cancelled", "Running", "Cancelled", False),
        ("Running", "", "Running", "Running", True),
        ("Running", "", "Admitted", "Admitted", True),
        ("Admitted", "", "Admitted", "Admitted", True),
        ("Succeeded", "", "Running", "Succeeded", True),
        ("Succeeded", "", "Suspended", "Succeeded", False),
        ("Suspended", "", "Suspended", "Suspended", True),
    ],
)
def test_a_phase_ends_the_waits_that_it_ends(
    phase: str, reason: str, goal: Goal, outcome: str | None, reached: bool | None
) -> None:
    ending = endings.judge(KEY, item(phase, reason), goal)
    assert (ending and ending.outcome) == outcome
    assert (ending and ending.reaches(goal)) == reached
    assert ending is None or goal == "Admitted" or ending.message == f"it is {phase}"


def test_a_deleted_job_ends_every_wait_also_while_a_finalizer_keeps_it() -> None:
    leaving = item("Running")
    leaving["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    for state in (None, leaving):
        ending = endings.judge(KEY, state, "Running")
        assert ending is not None
        assert ending.outcome == "Deleted"


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ('{"accuracy":0.9}', {"accuracy": 0.9}),
        ('{"value":4}', {"value": 4}),
        ("{}", {}),
        ("[1]", [1]),
        ("4", 4),
        ('""', ""),
        ("false", False),
        (None, None),
        ("", None),
        ("{", None),
    ],
)
def test_the_result_of_a_job_is_the_json_value_that_it_gave_or_none(text: str | None, result: object) -> None:
    ending = endings.judge(KEY, item("Succeeded", result=text), "Finished")
    assert ending is not None
    assert (type(ending.result), ending.result) == (type(result), result)
