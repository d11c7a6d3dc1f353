"""Answers that do not end: watches and followed logs, closable from another thread.

One rule: the connection is closed by whoever holds the reading lock: the reader, or a closer that found nobody reading.
"""

import contextlib
import threading
from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import Any, Generic, TypeVar

import orjson

from crds.torchjob.size_limits import Long
from kube import errors, jsontext, status
from kube.api import WatchEvent
from kube.transport import Response

T = TypeVar("T")

_UNKNOWN_CODE = 500
"""An ERROR event that names no code is the server's failure."""


class Stream(Generic[T]):
    """Values made from an open response; an iterator that `close` ends, from any thread, even while it waits.

    A generator cannot be that: closing one while it runs raises ValueError.
    """

    def __init__(self, response: Response, values: Iterator[T]) -> None:
        self._response = response
        self._values = values
        self._closing = threading.Event()
        self._reading = threading.Lock()

    def __iter__(self) -> "Stream[T]":
        return self

    def __next__(self) -> T:
        try:
            with self._reading:
                return self._read()
        finally:
            if self._closing.is_set():  # by one who may have found us reading; we need not be asked for more
                self._close_unless_read()

    def _read(self) -> T:
        try:
            return self._advance()
        except BaseException:
            self._response.close()
            raise

    def _advance(self) -> T:
        if self._closing.is_set():
            raise StopIteration
        try:
            return next(self._values)
        except errors.Unreachable as e:
            if self._closing.is_set():
                raise StopIteration from e
            raise

    def close(self) -> None:
        """End the stream: the connection is closed, and a reader waiting for it gets StopIteration."""
        self._closing.set()
        with contextlib.suppress(OSError, ValueError, RuntimeError):
            # Already ended or released: nobody can be waiting for it.
            self._response.shutdown()
        self._close_unless_read()

    def _close_unless_read(self) -> None:
        if self._reading.acquire(blocking=False):
            try:
                self._response.close()
            finally:
                self._reading.release()

    def __enter__(self) -> "Stream[T]":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()


def events(pieces: Iterable[bytes], action: str) -> Iterator[WatchEvent]:
    """The events in a watch's bytes; an ERROR event is raised as the error it carries (410 as Expired)."""
    for line in lines(pieces):
        match _parse(line):
            case {
                "type": "ADDED" | "MODIFIED" | "DELETED" | "BOOKMARK" as kind,
                "object": {"metadata": dict()} as body,
            }:
                yield WatchEvent(kind, _careful(body) if len(line) >= jsontext.LONG else body)
            case {"type": "ERROR", "object": dict() as body}:
                raise status.error(int(body.get("code") or _UNKNOWN_CODE), body, action)
            case _:
                raise errors.ServerError(f"could not {action}: the server sent a line that is no event: {line[:80]!r}")


def _careful(body: dict[str, Any]) -> dict[str, Any]:
    return body if isinstance(body, Long) else Long(body)


def lines(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Whole lines from pieces cut anywhere. A last line without its end is dropped: the watch resumes before it."""
    rest: list[bytes] = []
    for piece in pieces:
        *whole, tail = piece.split(b"\n")
        for line in whole:
            rest.append(line)
            if joined := b"".join(rest).strip():
                yield joined
            rest.clear()
        if tail:
            rest.append(tail)


def _parse(line: bytes) -> Any:
    try:
        return jsontext.loads(line)
    except orjson.JSONDecodeError:
        return None
