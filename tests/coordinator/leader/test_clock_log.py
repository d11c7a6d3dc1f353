"""What a coordinator logs about the clock of its machine."""

import pytest

from coordinator.leader.clock_log import ClockLog


def test_a_wrong_clock_is_logged_once_and_its_end_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    problems = iter(
        ("", "the clock of this machine is 2.0 h ahead", "the clock of this machine is 2.1 h ahead", "", "")
    )
    log = ClockLog(lambda: next(problems))
    for _ in range(5):
        log.check()
    assert caplog.messages == [
        "the clock of this machine is 2.0 h ahead: set it",
        "the clock of this machine is right again",
    ]
