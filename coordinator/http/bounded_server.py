"""An HTTP server for small requests and answers, which costs its process little whatever its clients do.

One rule: every number is bounded: all connections, and those of one address; the requests of one address in a second;
requests that wait for an answer; threads that make answers, and the share of time they work; the size of a request, and
how long a client may take. A connection beyond a bound is closed, and a request beyond a bound is answered with 503 and
Retry-After.

There are two kinds of answers. Quick answers wait for nothing, so the thread that reads the requests makes them itself.
Probes are therefore answered while all other capacity is in use. A few other threads make all other answers.
"""

import asyncio
import contextlib
import logging
import math
import queue
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from types import MappingProxyType
from typing import NamedTuple

from coordinator.access.readers import HEADER


class Answer(NamedTuple):
    """An answer to a request."""

    code: int
    body: bytes
    kind: str
    """The media type of the body."""
    headers: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Question:
    """A request."""

    path: str
    """The path with its query."""
    host: str
    """The Host header."""
    method: str = "GET"
    authorization: str = field(default="", repr=False)
    """The Authorization header, which is never logged."""
    token: str = field(default="", repr=False)
    """The token of an account (`coordinator.access`), which is never logged."""
    body: bytes = field(default=b"", repr=False)


@dataclass(frozen=True, slots=True)
class ServerLimits:
    """The bounds of a server."""

    connections: int = 256
    """The most connections open at once. Beyond that, each new connection closes the oldest one."""
    connections_of_address: int = 64
    answers: int = 32
    """The most requests that wait for an answer or whose answer is being sent."""
    answers_of_address: int = 16
    threads: int = 4
    rest: float = 3.0
    """How long a thread rests after an answer, as a multiple of the CPU time that the answer took.

    With four threads, answers take at most about as much CPU time as one thread that never rests.
    """
    longest_rest: float = 2.0
    busy_seconds: float = 1.0
    """How long a 503 is delayed, so that a client that asks again at once costs little."""
    head_bytes: int = 16 * 1024
    body_bytes: int = 0
    """The most bytes after the head of a POST; 0: POST is not answered."""
    head_seconds: float = 5.0
    """How long a client may take to send a request."""
    seconds: float = 15.0
    """How long a connection may be open."""
    requests_of_address: float = math.inf
    """The most requests of one address that are answered in a second, in the long run. More of them have to wait."""


LIMITS = ServerLimits()
_AT_ONCE = 16
"""The number of connections that are accepted in a row before open ones are served.

It is far lower than the limit of one address, so that no connection is closed for a newer one before it was served.
"""
_BACKLOG = 1024
_LINGER_BYTES = 4 * 1024 * 1024
"""How much of a refused request is read and thrown away. A client that still sends would otherwise see a broken
connection instead of the answer."""
_ADDRESSES = 1024
"""The number of addresses from which a new one has those forgotten that have been quiet."""
_BUSY = Answer(
    HTTPStatus.SERVICE_UNAVAILABLE,
    b'{"kind":"Status","apiVersion":"v1","status":"Failure","code":503,"message":"too many requests wait for '
    b'an answer: try again in a second"}\n',
    "application/json",
    {"Retry-After": "1"},
)
log = logging.getLogger(__name__)


@dataclass(eq=False)
class _Request:
    """A request that waits for a thread."""

    question: Question
    answer: "asyncio.Future[Answer]"


class HttpServer:
    """Answers GET requests, and POST if the limits allow a body, one on each connection."""

    def __init__(
        self,
        quick: Callable[[Question], Answer | None],
        slow: Callable[[Question], Answer],
        headers: Callable[[], Mapping[str, str]],
        limits: ServerLimits = LIMITS,
    ) -> None:
        self._quick = quick
        """A function that returns a quick answer; None if another thread has to make the answer."""
        self._slow = slow
        self._headers = headers
        self._limits = limits
        self._open: dict[asyncio.StreamWriter, str] = {}
        """Open connections and their client addresses, oldest first."""
        self._answers: Counter[str] = Counter()
        self._paces: dict[str, float] = {}
        """When all requests of an address so far are paid for, at the pace of one address."""
        self._waiting: queue.SimpleQueue[_Request | None] = queue.SimpleQueue()
        self._tasks: set[asyncio.Task[None]] = set()
        self._over = threading.Event()

    @contextmanager
    def running(self, address: str, port: int) -> Iterator[int]:
        """Answer requests in threads of the server while the block runs; yield the port. Raises OSError."""
        self._loop = asyncio.new_event_loop()
        try:
            family = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM)[0][0]
            with socket.create_server((address, port), family=family) as listener:
                yield from self._answering(listener)
        finally:
            self._loop.close()

    def _answering(self, listener: socket.socket) -> Iterator[int]:
        starting = asyncio.start_server(self._serve, sock=listener, limit=self._limits.head_bytes, backlog=_AT_ONCE)
        server = self._loop.run_until_complete(starting)
        listener.listen(_BACKLOG)  # asyncio uses one number for the backlog and for accepts in a row
        port = int(listener.getsockname()[1])
        threads = [threading.Thread(target=self._work, name=f"answers-{n}") for n in range(self._limits.threads)]
        threads.append(threading.Thread(target=self._loop.run_forever, name="health"))
        for thread in threads:
            thread.start()
        try:
            yield port
        finally:
            asyncio.run_coroutine_threadsafe(self._stop(server), self._loop).result()
            self._loop.call_soon_threadsafe(self._loop.stop)
            for thread in threads:
                thread.join()

    async def _stop(self, server: asyncio.Server) -> None:
        server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._over.set()
        for _ in range(self._limits.threads):
            self._waiting.put(None)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        address = str((writer.get_extra_info("peername") or ("",))[0])
        self._make_room(address)
        self._open[writer] = address
        try:
            async with asyncio.timeout(self._limits.seconds):
                await self._converse(reader, writer, address)
                writer.close()
                await writer.wait_closed()
        except (OSError, EOFError, TimeoutError, asyncio.CancelledError) as error:
            log.debug("the connection of %s ended: %r", address, error)
        finally:
            _abort(writer)
            self._open.pop(writer, None)
            self._tasks.discard(task)

    def _make_room(self, address: str) -> None:
        same_address = [writer for writer, client in self._open.items() if client == address]
        if len(same_address) >= self._limits.connections_of_address:
            oldest = same_address[0]
        elif len(self._open) >= self._limits.connections:
            oldest = next(iter(self._open))
        else:
            return
        del self._open[oldest]
        _abort(oldest)

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, address: str) -> None:
        try:
            async with asyncio.timeout(self._limits.head_seconds):
                question = await self._receive(reader)
        except asyncio.LimitOverrunError:
            await self._refuse(reader, writer, _plain(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE))
            return
        except _Refused as refused:
            await self._refuse(reader, writer, refused.answer)
            return
        if wait := self._wait_of(address):
            await asyncio.sleep(wait)
            if writer.is_closing():
                return  # it was closed for a newer connection
        answer = self._quick(question)
        if answer is None and not self._has_room(address):
            await asyncio.sleep(self._limits.busy_seconds)
            answer = _BUSY
        if answer is not None:
            self._reply(writer, answer)
            return
        self._answers[address] += 1
        try:
            self._reply(writer, await self._answer(question, reader))
            await writer.drain()
        finally:
            self._answers[address] -= 1
            self._answers += Counter()  # drops the addresses without waiting requests

    async def _receive(self, reader: asyncio.StreamReader) -> Question:
        """Read a request. Raises _Refused, and LimitOverrunError for a head that is too long."""
        head = _read(await reader.readuntil(b"\r\n\r\n"))
        allowed = ("GET", "POST") if self._limits.body_bytes else ("GET",)
        if head.method not in allowed:
            raise _Refused(HTTPStatus.METHOD_NOT_ALLOWED, {"Allow": ", ".join(allowed)})
        size = head.body_size if head.method == "POST" else 0
        if size is None:
            raise _Refused(HTTPStatus.LENGTH_REQUIRED)
        if size > self._limits.body_bytes:
            raise _Refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
        body = await reader.readexactly(size)
        said = head.headers.get
        return Question(
            head.path, said("host", ""), head.method, said("authorization", ""), said(HEADER.lower(), ""), body
        )

    async def _refuse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, answer: Answer) -> None:
        """Answer a request of which a part may still arrive."""
        self._reply(writer, answer)
        if writer.can_write_eof():
            writer.write_eof()
        left = _LINGER_BYTES
        async with asyncio.timeout(self._limits.head_seconds):
            while left > 0 and (piece := await reader.read(left)):
                left -= len(piece)

    def _wait_of(self, address: str) -> float:
        """Count a request of an address. Return the seconds for which it waits, so that the address keeps its pace.

        The request waits no longer than all open connections of the address need: closed connections wait for nothing.
        """
        limits = self._limits
        if limits.requests_of_address == math.inf:
            return 0.0
        now, pause = time.monotonic(), 1.0 / limits.requests_of_address
        if len(self._paces) >= _ADDRESSES:
            self._paces = {each: until for each, until in self._paces.items() if until > now}
        until = max(now - 1.0, self._paces.get(address, 0.0)) + pause
        self._paces[address] = until = min(until, now + limits.connections_of_address * pause)
        return max(0.0, until - now)

    def _has_room(self, address: str) -> bool:
        limits = self._limits
        return self._answers.total() < limits.answers and self._answers[address] < limits.answers_of_address

    async def _answer(self, question: Question, reader: asyncio.StreamReader) -> Answer:
        """Return the answer that another thread makes. Raises EOFError if the client closes the connection before
        the answer is made."""
        answer: asyncio.Future[Answer] = self._loop.create_future()
        self._waiting.put(_Request(question, answer))
        leaving = asyncio.ensure_future(reader.read(1))
        try:
            await asyncio.wait((answer, leaving), return_when=asyncio.FIRST_COMPLETED)
            if not answer.done() and not leaving.result():
                raise EOFError("the client left before its answer was made")
            return await answer
        finally:
            answer.cancel()
            leaving.cancel()

    def _reply(self, writer: asyncio.StreamWriter, answer: Answer) -> None:
        lines = [f"HTTP/1.1 {int(answer.code)} {HTTPStatus(answer.code).phrase}", f"Content-Type: {answer.kind}",
                 f"Content-Length: {len(answer.body)}", "Connection: close"]  # fmt: skip
        lines += [f"{name}: {text}" for name, text in (*self._headers().items(), *answer.headers.items())]
        writer.write("\r\n".join([*lines, "", ""]).encode("latin-1", "replace") + answer.body)

    def _work(self) -> None:
        while (request := self._waiting.get()) is not None:
            if request.answer.done():
                continue  # the client has closed the connection, or has waited for too long
            before = time.thread_time()
            answer = self._slow(request.question)
            self._loop.call_soon_threadsafe(_settle, request.answer, answer)
            self._over.wait(min(self._limits.longest_rest, self._limits.rest * (time.thread_time() - before)))


class _Refused(Exception):
    """A request that this server does not answer."""

    def __init__(self, code: HTTPStatus, headers: Mapping[str, str] = MappingProxyType({})) -> None:
        super().__init__(code.phrase)
        self.answer = _plain(code, headers)


@dataclass(frozen=True, slots=True)
class _Head:
    """The head of a request."""

    method: str
    path: str
    headers: Mapping[str, str] = field(repr=False)

    @property
    def body_size(self) -> int | None:
        """The number of bytes that follow; None if that is not said in advance."""
        text = self.headers.get("content-length", "")
        is_number = text.isascii() and text.isdigit() and len(text) <= 18
        return int(text) if is_number and "transfer-encoding" not in self.headers else None


def _read(head: bytes) -> _Head:
    """Parse the head of a request. Of headers of the same name the first header is used. Raises _Refused."""
    first, *lines = head.decode("latin-1").split("\r\n")
    parts = first.split(" ")
    if len(parts) != 3 or not parts[2].startswith("HTTP/1.") or not parts[1].startswith("/"):
        raise _Refused(HTTPStatus.BAD_REQUEST)
    fields = ((name.lower(), text.strip()) for name, _, text in (line.partition(":") for line in reversed(lines)))
    return _Head(parts[0], parts[1], dict(fields))


def _plain(code: HTTPStatus, headers: Mapping[str, str] = MappingProxyType({})) -> Answer:
    return Answer(code, f"{code.phrase}\n".encode(), "text/plain", headers)


def _abort(writer: asyncio.StreamWriter) -> None:
    """Close a connection at once, even if the connection is closed already."""
    with contextlib.suppress(AttributeError):  # asyncio fails if the last byte of a closing connection was just sent
        writer.transport.abort()


def _settle(future: "asyncio.Future[Answer]", answer: Answer) -> None:
    if not future.done():
        future.set_result(answer)
