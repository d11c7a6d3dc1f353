"""The last lines of a log on a page: bounded, and read as long as somebody looks."""

import threading
from collections.abc import Iterator
from typing import Any, cast

import pytest

from coordinator.dashboard.jobs import log_tail
from coordinator.dashboard.jobs.log_tail import AGAIN_SECONDS, LINES, LOOKED_SECONDS, LogReaders, Tail, ToldJob
from coordinator.follow.log_lines import LogLine, LogSelection
from coordinator.follow.present_logs import NoSuchPod
from crds.keys import JobKey
from kube.api import Cluster
from tests.coordinator.dashboard.jobs.scene import job
from tests.support.clock import Clock
from tests.support.waiting import until

KEY = JobKey("team", "train", "uid-train")
RANK_0 = LogSelection(follow=True)
CLUSTER = cast(Cluster, None)


class Following:
    """Logs that print what a test gives them, until they are told to stop."""

    def __init__(self, *lines: LogLine, error: Exception | None = None) -> None:
        self.lines, self.error = lines, error
        self.begun: list[LogSelection] = []
        self.ended = 0

    def __call__(
        self, _cluster: Any, states: ToldJob, key: JobKey, selection: LogSelection, stop: threading.Event
    ) -> Iterator[LogLine]:
        """Yield the lines, then follow the states of the job to their end."""
        self.begun.append(selection)
        try:
            yield from self.lines
            if self.error:
                raise self.error
            for item in states.changes(key):
                if item is None or stop.is_set():
                    return
        finally:
            self.ended += 1


def look(readers: LogReaders, item: Any = None, visitor: str = "me", selection: LogSelection = RANK_0) -> Tail:
    return readers.look(visitor, CLUSTER, KEY, selection, item or job())


def read(readers: LogReaders, count: int) -> Tail:
    found: Tail = until(lambda: look(readers), lambda tail: tail.lines and tail.lines[-1].number >= count)
    return found


def test_lines_come_with_their_pod_and_time_and_without_control_characters() -> None:
    lines = LogLine("worker-0", "\x1b[31mred\x1b[0m\t\x07\u202e<b>", "2026-01-01T00:00:00Z"), LogLine("", "a note")
    first, second = read(LogReaders(Following(*lines)), 2).lines
    assert (first.pod, first.time, first.text) == ("worker-0", "2026-01-01T00:00:00Z", "red     \\x07\\u202e<b>")
    assert (second.pod, second.text) == ("", "a note")


def test_only_the_last_lines_are_kept_and_only_the_first_characters_of_each() -> None:
    short = read(LogReaders(Following(*(LogLine("w", f"{number:0200}") for number in range(2000)))), 2000)
    assert [each.text for each in short.lines] == [f"{number:0200}" for number in range(2000 - LINES, 2000)]
    long = read(LogReaders(Following(*(LogLine("w", "x" * 1_000_000) for _ in range(300)))), 300)
    assert sum(len(each.text) for each in long.lines) <= log_tail.MOST_CHARACTERS
    assert {len(each.text) for each in long.lines} == {log_tail.LONGEST_LINE + 4}


def test_pages_of_one_visitor_share_a_reader_and_other_pods_and_visitors_have_their_own() -> None:
    following = Following()
    readers = LogReaders(following)
    for _ in range(3):
        look(readers)
    look(readers, selection=LogSelection(task="worker", index=2))
    look(readers, visitor="other")
    until(lambda: len(following.begun) == 3)
    assert [each.index for each in following.begun] == [0, 2, 0]


def own_threads() -> set[threading.Thread]:
    """Return the threads of all readers; what other tests have left may start threads at any time."""
    return {each for each in threading.enumerate() if each.name.startswith("dashboard-log")}


def test_a_reader_ends_some_seconds_after_the_last_look() -> None:
    clock, following, before = Clock(), Following(LogLine("w", "line")), own_threads()
    readers = LogReaders(following, clock)
    read(readers, 1)
    clock.step(LOOKED_SECONDS - 1)
    look(readers)
    clock.step(LOOKED_SECONDS - 1)
    assert look(readers).lines
    assert following.ended == 0
    assert own_threads() - before
    clock.step(LOOKED_SECONDS + 1)
    until(lambda: following.ended == 1)
    until(lambda: own_threads() <= before)


def test_the_log_ends_with_the_job_and_its_lines_stay() -> None:
    following = Following(LogLine("w", "line"))
    readers = LogReaders(following)
    read(readers, 1)
    readers.look("me", CLUSTER, KEY, RANK_0, None)
    over = until(lambda: readers.look("me", CLUSTER, KEY, RANK_0, None), lambda tail: tail.is_over)
    assert [each.text for each in over.lines] == ["line"]
    assert len(following.begun) == 1


def test_why_there_is_no_log_is_said_and_after_a_while_the_log_is_tried_again() -> None:
    clock, following = Clock(), Following(error=NoSuchPod("job train has no worker 9"))
    readers = LogReaders(following, clock)
    found = until(lambda: look(readers), lambda tail: tail.problem)
    assert found.problem == "job train has no worker 9"
    look(readers)
    assert len(following.begun) == 1
    clock.step(AGAIN_SECONDS - 5)
    look(readers)
    clock.step(6)
    look(readers)
    until(lambda: len(following.begun) == 2)


def test_a_log_too_many_is_an_answer_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_tail, "MOST_READERS", 3)
    monkeypatch.setattr(log_tail, "MOST_OF_VISITOR", 2)
    readers, second, third = LogReaders(Following()), LogSelection(index=1), LogSelection(index=2)
    assert [look(readers, visitor="a", selection=each).problem for each in (RANK_0, RANK_0, second)] == ["", "", ""]
    assert look(readers, visitor="a", selection=third).problem == log_tail.NOT_SHOWN
    assert [look(readers, visitor=name).problem for name in "bc"] == ["", log_tail.NOT_SHOWN]
