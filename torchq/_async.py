"""How calls of asyncio are made: the base of the client of `torchq.aio` and of its jobs.

One rule: each event loop has one process. A task of that loop reads from it, and ends it when the loop's tasks are
cancelled, as `asyncio.run` does at its end.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import weakref
from collections import deque
from collections.abc import AsyncIterator, Mapping
from typing import Any

from torchq import _answers, _parameters, _program, _protocol
from torchq._calls import CALLS
from torchq._errors import Disconnected, TorchqError
from torchq._job import JobHandle
from torchq._program import Options
from torchq._protocol import LONGEST_LINE, WINDOW, Dialog
from torchq._training.importing import SUBMITTING, refuse_while_importing

_KEPT_LINES = 100
_END_SECONDS = 2.0
_News = asyncio.Queue["tuple[str, Any]"]


class _AsyncProcess:
    """A running `torchq rpc`, and the calls of one event loop that it has not answered yet."""

    def __init__(self, path: str, selection: tuple[tuple[str, str], ...], process: asyncio.subprocess.Process) -> None:
        self.selection = selection
        self._path = path
        self._process = process
        self._dialog = Dialog()
        self._errors: deque[bytes] = deque(maxlen=_KEPT_LINES)
        self._is_retired = False
        self._reading: asyncio.Task[None] | None = None

    @classmethod
    async def start(cls, path: str, options: Options, environ: Mapping[str, str]) -> _AsyncProcess:
        """Start the program, and wait for its first line. Raises NoProgram or VersionMismatch."""
        try:
            process = await asyncio.create_subprocess_exec(
                *_program.command(path, options),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                env=_program.environment(environ),
                limit=LONGEST_LINE,
                start_new_session=True,
            )
        except OSError as error:
            raise _program.cannot_start(path, error) from error
        started = cls(path, _program.selection(environ), process)
        first: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        started._reading = asyncio.create_task(started._read(first), name="torchq rpc")
        started._send(_protocol.hello())
        try:
            line = await asyncio.wait_for(asyncio.shield(first), _program.HELLO_SECONDS)
            _protocol.check_hello(line, path)
        except BaseException as error:
            await started.close()
            if isinstance(error, asyncio.TimeoutError):
                raise _program.no_hello(path, _program.last_words(started._errors)) from error
            raise
        return started

    @property
    def is_alive(self) -> bool:
        """Whether the program answers."""
        return self._reading is not None and not self._reading.done()

    async def call(self, method: str, params: Mapping[str, Any]) -> Any:
        """Send a call and return its answer. If the task is cancelled, so is the call."""
        news: _News = asyncio.Queue()
        with self._opened(method, params, news):
            return (await _next(news))[1]

    async def stream(self, method: str, params: Mapping[str, Any]) -> AsyncIterator[Any]:
        """Yield the items of a stream. The end of the generator, or of its task, cancels the call."""
        news: _News = asyncio.Queue()
        with self._opened(method, params, news) as number:
            used = 0
            while True:
                kind, value = await _next(news)
                if kind != "item":
                    return
                yield value
                used += 1
                if used % (WINDOW // 2) == 0:
                    self._send(self._dialog.more(number, WINDOW // 2))

    async def close(self) -> None:
        """End the program, and wait a moment for its end."""
        self._dialog.end(lambda: TorchqError("the client was closed in the middle of the call"))
        self._end_input()
        if self._reading is not None:
            await asyncio.wait([self._reading], timeout=_END_SECONDS)
            self._reading.cancel()
            await asyncio.wait([self._reading])

    def retire(self) -> None:
        """End the program once it has answered all calls."""
        self._is_retired = True
        if self._dialog.is_idle:
            self._end_input()

    @contextlib.contextmanager
    def _opened(self, method: str, params: Mapping[str, Any], news: _News) -> Any:
        number, line = self._dialog.open(method, params, lambda *each: news.put_nowait(each))
        try:
            self._send(line)
            yield number
        finally:
            cancel = self._dialog.cancel(number)
            if cancel is not None:
                self._send(cancel)
            if self._is_retired and self._dialog.is_idle:
                self._end_input()

    def _send(self, line: bytes) -> None:
        assert self._process.stdin is not None
        if not self._process.stdin.is_closing():
            self._process.stdin.write(line)

    def _end_input(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()

    async def _read(self, first: asyncio.Future[bytes]) -> None:
        """Give every line of the program to its call, until the program ends. End the process if this task is
        cancelled.
        """
        listening = asyncio.create_task(self._read_errors(), name="torchq rpc errors")
        try:
            await self._read_lines(first)
        finally:
            self._end_input()
            code = await self._code()
            await asyncio.wait([listening], timeout=_END_SECONDS)
            listening.cancel()
            words = _program.last_words(self._errors)
            if not first.done():
                first.set_exception(_program.no_hello(self._path, words))
            self._dialog.end(lambda: _program.ended(self._path, code, words))

    async def _read_lines(self, first: asyncio.Future[bytes]) -> None:
        assert self._process.stdout is not None
        try:
            async for line in self._process.stdout:
                if first.done():
                    self._dialog.receive(line)
                else:
                    first.set_result(line)
        except ValueError:  # a line that is too long, or no message
            self._process.kill()

    async def _read_errors(self) -> None:
        assert self._process.stderr is not None
        with contextlib.suppress(ValueError):
            async for line in self._process.stderr:
                self._errors.append(line)

    async def _code(self) -> int | None:
        try:
            return await asyncio.wait_for(self._process.wait(), _END_SECONDS)
        except asyncio.TimeoutError:
            self._process.kill()
            return await self._process.wait()


async def _next(news: _News) -> tuple[str, Any]:
    kind, value = await news.get()
    if kind == "error":
        raise value
    return kind, value


class AsyncCalls:
    """A client: the calls of all tasks of an event loop go to one `torchq rpc`."""

    def __init__(
        self,
        *,
        kubeconfig: str | os.PathLike[str] = "",
        context: str = "",
        namespace: str = "",
        coordinator: str = "",
    ) -> None:
        """Create a client. Nothing is started before the first call. The options are the same as those of the command
        `torchq`.
        """
        self._options = Options(os.fspath(kubeconfig), context, namespace, coordinator)
        self._processes: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Future[_AsyncProcess]] = (
            weakref.WeakKeyDictionary()
        )

    async def close(self) -> None:
        """End the process of this event loop. The next call starts another process. Jobs are not touched."""
        starting = self._processes.pop(asyncio.get_running_loop(), None)
        if starting is not None:
            with contextlib.suppress(TorchqError):
                await (await starting).close()

    async def __aenter__(self) -> Any:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def _make_job(self, handle: str) -> Any:
        raise NotImplementedError

    async def _call(self, method: str, given: Mapping[str, object]) -> Any:
        if method in SUBMITTING:
            refuse_while_importing()
        call = CALLS[method]
        params = _parameters.as_params(call, given)
        try:
            value = await (await self._connected()).call(method, params)
        except Disconnected:
            if not call.repeatable:
                raise
            value = await (await self._connected()).call(method, params)
        return _answers.convert(call, value, self._make_job)

    async def _stream(self, method: str, given: Mapping[str, object]) -> AsyncIterator[Any]:
        call = CALLS[method]
        params = _parameters.as_params(call, given)
        items = (await self._connected()).stream(method, params)
        try:
            async for value in items:
                yield _answers.convert(call, value, self._make_job)
        finally:
            await items.aclose()  # type: ignore[attr-defined]

    async def _connected(self) -> _AsyncProcess:
        """Return the process of this event loop, started if it does not run, or if other variables select the cluster
        now."""
        loop, environ = asyncio.get_running_loop(), os.environ
        starting = self._processes.get(loop)
        if starting is not None and starting.done() and not self._is_usable(starting):
            starting = None
        if starting is None:
            path = _program.find(environ)
            starting = asyncio.ensure_future(_AsyncProcess.start(path, self._options, environ))
            self._processes[loop] = starting
        return await asyncio.shield(starting)

    @staticmethod
    def _is_usable(started: asyncio.Future[_AsyncProcess]) -> bool:
        if started.cancelled() or started.exception() is not None or not started.result().is_alive:
            return False
        if started.result().selection != _program.selection(os.environ):
            started.result().retire()
            return False
        return True


class AsyncJob(JobHandle):
    """A job, and the client for its calls."""

    def __init__(self, handle: str, client: AsyncCalls) -> None:
        super().__init__(handle)
        self._client = client

    async def _call(self, method: str, given: Mapping[str, object]) -> Any:
        return await self._client._call(method, {"job": self.handle, **given})

    def _stream(self, method: str, given: Mapping[str, object]) -> AsyncIterator[Any]:
        return self._client._stream(method, {"job": self.handle, **given})
