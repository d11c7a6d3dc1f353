"""What the command that follows a job prints of progress bars: on a terminal, and elsewhere."""

import sys

import pytest

from coordinator.cli.jobs import followed_output
from coordinator.cli.jobs.followed_output import LinePrinter


def test_state_of_a_line_is_replaced_by_the_next_output(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "12")
    printer, erase = LinePrinter(), "\r\x1b[K"
    printer.line("\x1b[31m 1%\x1b[0m|#         |", is_over=False)
    printer.line("\x1b[31m100%|##########|", is_over=True)
    printer.line("2%", is_over=False)
    printer.note("restart 1")
    printer.line("3%", is_over=False)
    printer.clear()
    printer.clear()
    said = capfd.readouterr()
    assert said.out == f"{erase} 1%|#      {erase}\x1b[31m100%|##########|\x1b[0m\n{erase}2%{erase}{erase}3%{erase}"
    assert said.err == "restart 1\n"


def test_raw_lines_are_printed_as_the_pod_printed_them(capfd: pytest.CaptureFixture[str]) -> None:
    printer = LinePrinter(raw=True)
    for text, is_over in ((" 1%", False), ("100%", False), ("", True)):
        printer.line(text, is_over=is_over)
    assert capfd.readouterr().out == " 1%\r100%\r\n"


@pytest.mark.parametrize(
    ("raw", "is_terminal", "expected"), [(True, True, "all"), (False, True, "newest"), (False, False, "last")]
)
def test_newest_states_are_for_terminals(
    raw: bool, is_terminal: bool, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: is_terminal)
    assert followed_output.states(raw=raw) == expected
