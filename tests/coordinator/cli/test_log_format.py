"""The formats of log lines."""

import io
import json
import logging
import os

import pytest

from coordinator.cli import log_format


@pytest.fixture
def stream() -> io.StringIO:
    return io.StringIO()


@pytest.fixture
def log(stream: io.StringIO) -> logging.Logger:
    handler = logging.StreamHandler(stream)
    handler.setFormatter(log_format.formatter("json"))
    made = logging.Logger("coordinator.test")
    made.addHandler(handler)
    return made


def test_each_event_is_one_json_object_with_the_time_in_utc(log: logging.Logger, stream: io.StringIO) -> None:
    log.warning("the queue %r\nhas two lines", "a")
    try:
        raise ValueError("a defect")
    except ValueError:
        log.exception("it failed")
    first, second = map(json.loads, stream.getvalue().splitlines())
    assert first | {"time": ""} == {
        "time": "",
        "level": "WARNING",
        "logger": "coordinator.test",
        "message": "the queue 'a'\nhas two lines",
    }
    assert first["time"].endswith("+00:00")
    assert second["traceback"].endswith("ValueError: a defect")


def test_a_path_that_is_no_utf_8_is_written_with_escapes(log: logging.Logger, stream: io.StringIO) -> None:
    log.warning("cannot read %s", os.fsdecode(b"caf\xe9"))
    assert json.loads(stream.getvalue())["message"] == r"cannot read caf\udce9"


def test_text_is_the_format_for_people() -> None:
    record = logging.LogRecord("a.b", logging.INFO, "", 0, "done %d", (3,), None)
    assert log_format.formatter("text").format(record).endswith(" INFO a.b: done 3")
