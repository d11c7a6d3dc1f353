"""The messages of `torchq run` about the job that the command follows."""

from typing import Any

import pytest

from coordinator.cli.jobs import followed_output
from coordinator.follow.endings import JobEnding, Outcome
from coordinator.follow.log_lines import LogLine
from coordinator.wording import job_state
from crds.keys import JobKey

KEY = JobKey("team", "train", "uid")


@pytest.mark.parametrize(
    ("outcome", "message", "result", "seconds", "expected"),
    [
        ("Succeeded", "all is done", {"accuracy": 0.953}, 840.0, 'Succeeded in 14m; result {"accuracy": 0.953}'),
        ("Succeeded", "all is done", None, 3.4, "Succeeded in 3s"),
        ("Failed", "pod a failed", None, 125.0, "Failed in 2m: pod a failed"),
        ("Cancelled", "", None, None, "Cancelled"),
        ("Deleted", "the job was deleted", None, None, "Deleted: the job was deleted"),
    ],
)
def test_the_last_line_says_how_the_job_ended(
    outcome: Outcome, message: str, result: dict[str, Any] | None, seconds: float | None, expected: str
) -> None:
    assert followed_output.describe(JobEnding(KEY, outcome, message, result), seconds) == expected


def test_lines_of_pods_go_to_standard_output_and_new_notes_to_standard_error(capfd: pytest.CaptureFixture[str]) -> None:
    notes = [LogLine("", "waiting: one"), LogLine("", "waiting: one"), LogLine("master-0", "ä"), LogLine("", "two")]
    followed_output.print_lines([*notes, LogLine("worker-2", "x"), LogLine("", "two"), LogLine("", "waiting: one")])
    said = capfd.readouterr()
    assert said.out == "[master-0] ä\n[worker-2] x\n"
    assert said.err == "waiting: one\ntwo\nwaiting: one\n"


def test_a_job_that_was_let_go_is_not_called_held_any_more() -> None:
    queue = {"name": "q", "reason": "Held", "message": "held back by its owner"}
    job = {"spec": {}, "status": {"phase": "Queued", "queue": queue}}
    assert job_state.without_hold(job)["status"] == {"phase": "Queued", "queue": {"name": "q"}}
    held = {**job, "spec": {"schedulingPolicy": {"hold": True}}}
    full = {"spec": {}, "status": {"queue": {**queue, "reason": "WaitingForQuota"}}}
    for other in (held, full, {"spec": {}}):
        assert job_state.without_hold(other) == other
