"""The channel from a child process to its supervisor, over a real pipe."""

import os
import threading
from collections.abc import Iterator

import pytest

from coordinator.life import channel
from coordinator.life.channel import ReportPipe
from tests.support.waiting import until


@pytest.fixture
def pipe() -> Iterator[ReportPipe]:
    made = ReportPipe()
    yield made
    made.close()


def test_a_process_tells_its_supervisor_again_and_again(pipe: ReportPipe, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channel, "SECONDS", 0.001)
    monkeypatch.setattr(channel, "SOONEST_SECONDS", 0.001)
    [(name, value)] = pipe.environment.items()
    monkeypatch.setenv(name, value)
    reports = iter(range(1_000_000))
    with channel.telling(lambda: {"number": next(reports)}):
        assert name not in os.environ, "a child of the process would take the pipe for its own"
        first = until(pipe.read)[-1]
        assert until(pipe.read)[0]["number"] == first["number"] + 1


def test_a_process_tells_soon_of_news_and_once_more_at_its_end(
    pipe: ReportPipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(channel, "SECONDS", 100.0)
    monkeypatch.setattr(channel, "SOONEST_SECONDS", 0.001)
    [(name, value)] = pipe.environment.items()
    monkeypatch.setenv(name, value)
    news, state = threading.Event(), ["begun"]
    with channel.telling(lambda: {"state": state[-1]}, news):
        assert until(pipe.read) == [{"state": "begun"}]
        state.append("working")
        news.set()
        assert until(pipe.read) == [{"state": "working"}]
        state.append("done")
    assert pipe.read() == [{"state": "done"}]


def test_every_whole_report_counts_and_what_is_no_report_is_ignored(pipe: ReportPipe) -> None:
    os.write(pipe.writer, b'{"n":1}\n{"n":2}\n{"n"')
    assert pipe.read() == [{"n": 1}, {"n": 2}]
    assert pipe.read() == []
    os.write(pipe.writer, b":3}\n")
    assert pipe.read() == [{"n": 3}]
    os.write(pipe.writer, b'nothing\n[]\n"x"\n')
    assert pipe.read() == []
    pipe.keep_reader()
    assert pipe.read() == []


@pytest.mark.parametrize("value", ["", "0:1", "1048575:1"])
def test_a_process_without_a_supervisor_tells_nobody(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(channel.PIPE, value)
    with channel.telling(lambda: pytest.fail("nobody asks")):
        pass
