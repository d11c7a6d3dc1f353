"""The formats of log lines: text for people, JSON for programs.

One rule: one event is one line, with its time, its level and the part of torchq that wrote it.
"""

import logging
from datetime import UTC, datetime
from typing import Any, Literal

import orjson

from coordinator import terminal

TEXT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


def formatter(name: Literal["text", "json"]) -> logging.Formatter:
    """Return the formatter of the setting `log_format`."""
    return JsonFormatter() if name == "json" else TextFormatter(TEXT)


class TextFormatter(logging.Formatter):
    """Writes each event as a line. A traceback follows in lines of its own."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - the name in logging
        """Return the line of an event: a name in it cannot begin another line."""
        return terminal.one_line(super().formatMessage(record))


class JsonFormatter(logging.Formatter):
    """Writes each event as a JSON object. A traceback is text in the field `traceback`."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of an event. The time is in UTC."""
        document: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": _readable(record.getMessage()),
        }
        if record.exc_info:
            document["traceback"] = _readable(self.formatException(record.exc_info))
        return terminal.clean_json(orjson.dumps(document).decode())


def _readable(text: str) -> str:
    """Return a text that can be encoded. A path may have bytes that are no UTF-8."""
    return text.encode(errors="backslashreplace").decode()
