"""Which lines of output are reports."""

import pytest

from coordinator.follow import printed_reports
from coordinator.follow.log_lines import LogLine

REPORT = {"step": 100, "loss": "NaN", "phase": "warm-up", "betas": [0.9, 0.95]}
TEXT = 'torchq-report: {"step":100,"loss":"NaN","phase":"warm-up","betas":[0.9,0.95]}'


@pytest.mark.parametrize("text", [TEXT, f"[rank1]:{TEXT}", f"epoch 1\r{TEXT}"])
def test_a_marked_line_is_a_report_with_its_pod_and_time(text: str) -> None:
    assert printed_reports.parse(LogLine("worker-1", text, "now")) == {**REPORT, "pod": "worker-1", "time": "now"}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "loss 0.3",
        'torchq-report: {"step":100',
        "torchq-report: [1]",
        "torchq-report: 3",
        "torchq-report:",
        'torchq-result: {"accuracy":0.9}',
        f"{TEXT} [torchq: cut, the line has 99 bytes]",
    ],
)
def test_other_lines_are_output(text: str) -> None:
    assert printed_reports.parse(LogLine("worker-1", text)) is None


def test_a_note_of_torchq_is_no_report() -> None:
    assert printed_reports.parse(LogLine("", TEXT)) is None
