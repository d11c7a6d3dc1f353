"""Answers without an end: watches and followed logs, which another thread can close.

One rule: only the holder of the reading lock closes the connection: the reader, or a closer while there is no reader.
"""

import contextlib
import threading
from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import Any, Generic, TypeVar

import orjson

from crds import excerpts
from crds.torchjob.size_limits import LargeObject
from kube import errors, jsontext, status
from kube.api import WatchEvent
from kube.transport import Response

T = TypeVar("T")

_UNKNOWN_CODE = 500
"""The code of an ERROR event without a code: a failure of the server."""


class Stream(Generic[T]):
    """Values read from an open response; an iterator that `close` ends, from any thread, even while it waits.

    A generator cannot do this: closing a running generator raises ValueError.
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
            if self._closing.is_set():  # `close` left the connection open if this thread was reading, so close it here
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
        """End the stream: the connection is closed, and a reader that waits for the next value gets StopIteration."""
        self._closing.set()
        with contextlib.suppress(OSError, ValueError, RuntimeError):
            # The response has ended or is released already, so no reader can be waiting for it.
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
    """Yield the events in a watch's bytes; raise the error of an ERROR event (Expired for 410)."""
    for line in lines(pieces):
        match _parse(line):
            case {
                "type": "ADDED" | "MODIFIED" | "DELETED" | "BOOKMARK" as kind,
                "object": {"metadata": dict()} as body,
            }:
                yield WatchEvent(kind, _as_long(body) if len(line) >= jsontext.LONG else body)
            case {"type": "ERROR", "object": dict() as body}:
                raise status.error(int(body.get("code") or _UNKNOWN_CODE), body, action)
            case _:
                text = excerpts.excerpt(line[:200].decode("utf-8", "replace"), 80)
                raise errors.ServerError(f"could not {action}: the server sent a line that is no event: {text!r}")


def _as_long(body: dict[str, Any]) -> dict[str, Any]:
    return body if isinstance(body, LargeObject) else LargeObject(body)


def lines(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Yield whole lines from pieces that end anywhere. An unfinished last line is dropped; the watch repeats it."""
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
