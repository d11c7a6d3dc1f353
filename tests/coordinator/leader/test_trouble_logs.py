"""What a coordinator logs about the clock of its machine, and about workers that take no work."""

from dataclasses import replace

import pytest

from coordinator.leader.trouble_logs import ClockLog, WorkerLog
from queues import redis_keys
from queues.registrations import Registration
from queues.storage.stats import QueueStats

NUMBERS = QueueStats(at=1.0, epoch=3, picks=0, runs=0, ready=0, delayed=0, leased=0, waiting=0, admitted=0)
OWN = Registration(worker="own", threads=4, version="0.2.0")
OLDER = (replace(OWN, worker="older", version="0.1.0", layout=9),)


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


def test_workers_of_another_layout_are_one_line_until_they_are_gone(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    members: list[tuple[Registration, ...]] = [(OWN,), (OWN, *OLDER), (OWN, *OLDER), (OWN,), (OWN,)]
    readings = iter(members)
    watch = WorkerLog(lambda: replace(NUMBERS, members=next(readings)))
    for _ in members:
        watch.note()
    assert caplog.messages == [
        f"1 worker of version 0.1.0 (layout 9) takes no work: the leader uses layout {redis_keys.OWN_LAYOUT}",
        "no worker is turned away any more",
    ]
