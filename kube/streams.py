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
from kube import error_answers, errors, jsontext, requests
from kube.api import ALL_OUTPUT, LogOptions, Manifest, WatchEvent
from kube.settings import ConnectionSettings
from kube.transport import Response, Transport

T = TypeVar("T")

_UNKNOWN_CODE = 500
"""The code of an ERROR event without a code: a failure of the server."""


class Stream(Generic[T]):
    """Values read from an open response; an iterator that `close` ends, from any thread, even while it waits.

    A generator cannot be closed from another thread: closing a running generator raises ValueError.
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


class LogStreams:
    """The part of a cluster's client that reads the output of containers (`kube.api.Cluster`)."""

    def __init__(self, transport: Transport, settings: ConnectionSettings) -> None:
        self._transport = transport
        self._settings = settings

    def logs(
        self, pod: str, namespace: str, container: str = "", *, follow: bool = False, options: LogOptions = ALL_OUTPUT
    ) -> Stream[bytes]:
        """Yield a container's output in pieces as they come; with `follow`, until the output ends.

        `close` ends the stream from any thread.
        """
        return self._open(requests.logs(pod, namespace, container, options, follow=follow), follow)

    def log_end(
        self, pod: str, namespace: str, container: str, *, lines: int, most: int, previous: bool = False
    ) -> str:
        """Return the last lines of a container's output, at most the last `most` bytes. With `previous`, return the
        lines of the run before the last restart."""
        text = b""
        with self.logs(pod, namespace, container, options=LogOptions(previous=previous, tail=lines)) as pieces:
            for piece in pieces:
                text = (text + piece)[-most:]
        return text.decode(errors="replace")

    def job_runs(self, namespace: str, uid: str) -> list[Manifest]:
        """Return the runs of all containers of a TorchJob, also of pods that are gone, in the order of their beginning.

        Only the embedded API server lists these runs. Raise NotFound for a job that does not exist, and on other
        servers.
        """
        runs: list[Manifest] = self._transport.send(requests.job_runs(namespace, uid))["runs"]
        return runs

    def job_log(
        self, namespace: str, uid: str, run: str, *, follow: bool = False, options: LogOptions = ALL_OUTPUT
    ) -> Stream[bytes]:
        """Yield the output of one of these runs, as `logs` does."""
        return self._open(requests.job_log(namespace, uid, run, options, follow=follow), follow)

    def _open(self, request: requests.Request, follow: bool) -> Stream[bytes]:
        patience = None if follow else self._settings.read_timeout
        response = self._transport.open(request, first_timeout=patience, idle_timeout=patience)
        return Stream(response, self._transport.pieces(response))


def events(pieces: Iterable[bytes], action: str) -> Iterator[WatchEvent]:
    """Yield the events in a watch's bytes; raise the error of an ERROR event (Expired for 410)."""
    for line in lines(pieces):
        match _parse(line):
            case {
                "type": "ADDED" | "MODIFIED" | "DELETED" | "BOOKMARK" as kind,
                "object": {"metadata": dict()} as body,
            }:
                is_long = len(line) >= jsontext.LONG and not isinstance(body, LargeObject)
                yield WatchEvent(kind, LargeObject(body) if is_long else body)
            case {"type": "ERROR", "object": dict() as body}:
                raise error_answers.error(int(body.get("code") or _UNKNOWN_CODE), body, action)
            case _:
                text = excerpts.excerpt(line[:200].decode("utf-8", "replace"), 80)
                raise errors.ServerError(f"could not {action}: the server sent a line that is no event: {text!r}")


def lines(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Yield whole lines from pieces that end anywhere. An unfinished last line is dropped; the watch repeats this
    line."""
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
