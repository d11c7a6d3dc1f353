"""One `torchq rpc` process for all threads of this process.

One rule: the `torchq rpc` process ends with this process, because its standard input then ends. A fork of this process
closes its copies, so that they do not keep the `torchq rpc` process alive, and starts a process of its own.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import subprocess
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from queue import Empty, SimpleQueue
from typing import IO, Any

from torchq import _program, _protocol
from torchq._errors import TorchqError
from torchq._outbox import Outbox
from torchq._program import Options
from torchq._protocol import WINDOW, Dialog, Lines

_PIECE = 1 << 16
_KEPT_PIECES = 64
_END_SECONDS = 2.0
_News = SimpleQueue["tuple[str, Any]"]


class Process:
    """A running `torchq rpc`, and the calls that it has not answered yet."""

    def __init__(self, path: str, options: Options, environ: Mapping[str, str]) -> None:
        """Start the program, and wait for its first line. Raises NoProgram or VersionMismatch."""
        self.selection = _program.selection(environ)
        self._path = path
        self._dialog = Dialog()
        self._errors: deque[bytes] = deque(maxlen=_KEPT_PIECES)
        self._is_retired = False
        try:
            self._process = subprocess.Popen(
                _program.command(path, options),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=_program.environment(environ),
                bufsize=0,
                start_new_session=True,  # Ctrl-C is for this process, which cancels what it has asked for
            )
        except OSError as error:
            raise _program.cannot_start(path, error) from error
        assert self._process.stdin is not None
        self._outbox = Outbox(self._process.stdin.fileno())
        _OPEN.add(self)
        self._begin()

    @property
    def is_alive(self) -> bool:
        """Whether the program answers."""
        return self._reading.is_alive() and not self._outbox.is_broken

    def call(self, method: str, params: Mapping[str, Any]) -> Any:
        """Send a call and return its answer. An exception while it waits, as Ctrl-C, cancels the call."""
        news: _News = SimpleQueue()
        with self._opened(method, params, news):
            return _next(news)[1]

    def stream(self, method: str, params: Mapping[str, Any]) -> Iterator[Any]:
        """Yield the items of a stream. The end of the generator cancels the call."""
        news: _News = SimpleQueue()
        with self._opened(method, params, news) as number:
            used = 0
            while True:
                kind, value = _next(news)
                if kind != "item":
                    return
                yield value
                used += 1
                if used % (WINDOW // 2) == 0:
                    self._outbox.send(self._dialog.more(number, WINDOW // 2))

    def close(self) -> None:
        """End the program, and wait a moment for its end."""
        self._dialog.end(lambda: TorchqError("the client was closed in the middle of the call"))
        self._end_input()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_END_SECONDS)
        _OPEN.discard(self)

    def retire(self) -> None:
        """End the program once it has answered all calls."""
        self._is_retired = True
        if self._dialog.is_idle:
            self._end_input()

    def abandon(self) -> None:
        """Close the copies of the pipes that a fork has, and leave the program to the process that started it."""
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            _close(pipe)
        self._process.returncode = 0

    @contextlib.contextmanager
    def _opened(self, method: str, params: Mapping[str, Any], news: _News) -> Iterator[int]:
        number, line = self._dialog.open(method, params, lambda *each: news.put(each))
        try:
            self._outbox.send(line)
            yield number
        finally:
            cancel = self._dialog.cancel(number)
            if cancel is not None:
                self._outbox.send(cancel)
            if self._is_retired and self._dialog.is_idle:
                self._end_input()

    def _end_input(self) -> None:
        if not self._outbox.close(_END_SECONDS):
            self._process.kill()  # it does not read, and a thread waits for it
            self._outbox.close(_END_SECONDS)
        _close(self._process.stdin)

    def _begin(self) -> None:
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        first: SimpleQueue[bytes] = SimpleQueue()
        self._listening = threading.Thread(
            target=_read, args=(self._process.stderr, self._errors.append), name="torchq-errors", daemon=True
        )
        self._reading = threading.Thread(
            target=self._read_lines, args=(self._process.stdout, first), name="torchq-answers", daemon=True
        )
        self._listening.start()
        self._reading.start()
        self._outbox.send(_protocol.hello())
        try:
            try:
                line = first.get(timeout=_program.HELLO_SECONDS)
            except Empty:
                line = b""
            if not line:
                self._listening.join(_END_SECONDS)
                raise _program.no_hello(self._path, _program.last_words(self._errors))
            _protocol.check_hello(line, self._path)
        except BaseException:
            self._process.kill()
            self.close()
            raise

    def _read_lines(self, pipe: IO[bytes], first: SimpleQueue[bytes]) -> None:
        """Give every line of the program to its call, until the program ends."""
        lines, is_first = Lines(), True

        def take(piece: bytes) -> None:
            nonlocal is_first
            for line in lines.feed(piece):
                if is_first:
                    first.put(line)
                    is_first = False
                else:
                    self._dialog.receive(line)

        try:
            _read(pipe, take)
        except ValueError:  # a line that is no message
            self._process.kill()
        first.put(b"")
        self._end_input()
        code = self._code()
        self._listening.join(_END_SECONDS)
        words = _program.last_words(self._errors)
        self._dialog.end(lambda: _program.ended(self._path, code, words))

    def _code(self) -> int | None:
        try:
            return self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()


def _next(news: _News) -> tuple[str, Any]:
    kind, value = news.get()
    if kind == "error":
        raise value
    return kind, value


def _read(pipe: IO[bytes], take: Callable[[bytes], object]) -> None:
    """Take all that comes from a pipe, and close it."""
    with pipe:
        while piece := os.read(pipe.fileno(), _PIECE):
            take(piece)


def _close(pipe: IO[bytes] | None) -> None:
    if pipe is not None:
        with contextlib.suppress(OSError):
            pipe.close()


_OPEN: weakref.WeakSet[Process] = weakref.WeakSet()


def _abandon_all() -> None:
    for each in list(_OPEN):
        each.abandon()
    _OPEN.clear()


def _close_all() -> None:
    for each in list(_OPEN):
        each.close()


os.register_at_fork(after_in_child=_abandon_all)
atexit.register(_close_all)
