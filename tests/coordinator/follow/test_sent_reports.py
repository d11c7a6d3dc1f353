"""The reports that are sent and not printed: each of them once, among those that are printed."""

import queue
from collections.abc import Iterator
from typing import Any

import pytest

from coordinator.follow.sent_reports import SentReports, merge
from tests.support.waiting import SECONDS

SENT = {"pod": "train-master-0", "step": 3, "loss": 0.5, "gauges": {"lr": 0.1}, "reportedAt": "t1", "since": "t0"}
PROTOCOL = {"protocol": "kubeflow", "progressPercentage": 40, "totalSteps": 9}


def test_a_report_comes_once_and_those_that_are_printed_do_not() -> None:
    document: dict[str, Any] = {"pods": [SENT | PROTOCOL, SENT | {"pod": "train-worker-0"}]}
    sent = SentReports("train", lambda: document, lambda pod: pod != "eval-0")
    [report] = sent.new()
    assert report == {
        "step": 3,
        "loss": 0.5,
        "lr": 0.1,
        "progressPercentage": 40,
        "totalSteps": 9,
        "pod": "master-0",
        "time": "t1",
    }
    assert sent.new() == []
    document["pods"] = [SENT | PROTOCOL | {"reportedAt": "t2"}, SENT | PROTOCOL | {"pod": "train-eval-0"}]
    assert [each["time"] for each in sent.new()] == ["t2"]
    document = {"unknown": "no coordinator answers"}
    assert sent.new() == []


@pytest.mark.parametrize("is_followed", [True, False])
def test_what_is_sent_comes_while_the_output_waits_and_at_its_end(
    is_followed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("coordinator.follow.sent_reports.LOOK_SECONDS", 0.01)
    lines: queue.Queue[str | None] = queue.Queue()
    waiting = ["sent 1"]

    def printed() -> Iterator[str]:
        while (line := lines.get(timeout=SECONDS)) is not None:
            yield line
        raise ValueError("gone")

    def sent() -> list[str]:
        return [waiting.pop()] if waiting else []

    lines.put("line 1")
    found = merge(printed(), sent, is_followed=is_followed)
    assert {next(found), *([next(found)] if is_followed else [])} == {"line 1", *(["sent 1"] if is_followed else [])}
    lines.put(None)
    if is_followed:
        waiting.append("sent 1")
    assert next(found) == "sent 1"
    with pytest.raises(ValueError, match="gone"):
        next(found)
