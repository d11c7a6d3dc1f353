"""The log lines about an outage, with a stepped clock."""

import logging

import pytest

from queues.redis.log_throttle import OutageLog
from tests.support.clock import Clock


def test_errors_that_alternate_are_one_line_a_minute_each(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    clock = Clock()
    outage = OutageLog(logging.getLogger("test"), clock)
    for second in range(61):
        outage.report_failure(ValueError(f"trouble {second % 2}"))
        clock.step(1)
    assert sorted(record.getMessage() for record in caplog.records) == [
        "trouble 0; trying again",
        "trouble 0; trying again",
        "trouble 1; trying again",
    ]
    outage.report_recovery()
    assert caplog.messages[-1] == "over after 61 s: trouble 0"
    outage.report_failure(ValueError("trouble 0"))
    assert caplog.messages[-1] == "trouble 0; trying again"
