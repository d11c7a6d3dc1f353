"""An HTTP server for small read-only answers, which costs its process little whatever its clients do.

One rule: every number is bounded: all connections, and those of one address; requests that wait for an answer; threads
that make answers, and the share of time they work; how long a client may take. A connection beyond a bound is closed,
and a request beyond a bound is answered with 503 and Retry-After.

There are two kinds of answers. Quick answers wait for nothing, so the thread that reads the requests makes them itself.
Probes are therefore answered while all other capacity is in use. A few other threads make all other answers.
"""

import asyncio
import logging
import queue
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus

Answer = tuple[int, bytes, str]
"""Status code, body and its media type."""
Question = tuple[str, str]
"""The path with its query, and the Host header."""


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
    head_seconds: float = 5.0
    """How long a client may take to send the head of a request."""
    seconds: float = 15.0
    """How long a connection may be open."""


LIMITS = ServerLimits()
_AT_ONCE = 16
"""The number of connections that are accepted in a row before open ones are served.

It is far lower than the limit of one address, so that no connection is closed for a newer one before it was served.
"""
_BACKLOG = 1024
_BUSY: Answer = (
    HTTPStatus.SERVICE_UNAVAILABLE,
    b'{"kind":"Status","apiVersion":"v1","status":"Failure","code":503,"message":"too many requests wait for the '
    b'coordinator: try again in a second"}\n',
    "application/json",
)
log = logging.getLogger(__name__)


@dataclass(eq=False)
class _Request:
    """A request that waits for a thread."""

    question: Question
    answer: "asyncio.Future[Answer]"


class HttpServer:
    """Answers GET requests, one on each connection."""

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
        self._waiting: queue.SimpleQueue[_Request | None] = queue.SimpleQueue()
        self._tasks: set[asyncio.Task[None]] = set()
        self._over = threading.Event()

    @contextmanager
    def running(self, address: str, port: int) -> Iterator[int]:
        """Answer requests in threads of the server while the block runs; yield the port. Raises OSError."""
        self._loop = asyncio.new_event_loop()
        try:
            yield from self._running(address, port)
        finally:
            self._loop.close()

    def _running(self, address: str, port: int) -> Iterator[int]:
        family = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM)[0][0]
        with socket.create_server((address, port), family=family) as listener:
            yield from self._answering(listener)

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
            writer.transport.abort()
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
        oldest.transport.abort()

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, address: str) -> None:
        try:
            async with asyncio.timeout(self._limits.head_seconds):
                question = _read(await reader.readuntil(b"\r\n\r\n"))
        except asyncio.LimitOverrunError:
            self._reply(writer, _plain(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE))
            return
        except _Refused as refused:
            self._reply(writer, _plain(refused.code))
            return
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

    def _has_room(self, address: str) -> bool:
        limits = self._limits
        return self._answers.total() < limits.answers and self._answers[address] < limits.answers_of_address

    async def _answer(self, question: Question, reader: asyncio.StreamReader) -> Answer:
        """Return the answer that another thread makes. Raises EOFError if the client closes the connection before
        that."""
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
        code, body, kind = answer
        lines = [f"HTTP/1.1 {int(code)} {HTTPStatus(code).phrase}", f"Content-Type: {kind}",
                 f"Content-Length: {len(body)}", "Connection: close"]  # fmt: skip
        lines += [f"{name}: {text}" for name, text in self._headers().items()]
        if answer is _BUSY:
            lines.append("Retry-After: 1")
        if code == HTTPStatus.METHOD_NOT_ALLOWED:
            lines.append("Allow: GET")
        writer.write("\r\n".join([*lines, "", ""]).encode("latin-1", "replace") + body)

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

    def __init__(self, code: HTTPStatus) -> None:
        super().__init__(code.phrase)
        self.code = code


def _read(head: bytes) -> Question:
    """Return the path and the Host header of a request. Raises _Refused."""
    first, *lines = head.decode("latin-1").split("\r\n")
    parts = first.split(" ")
    if len(parts) != 3 or not parts[2].startswith("HTTP/1.") or not parts[1].startswith("/"):
        raise _Refused(HTTPStatus.BAD_REQUEST)
    if parts[0] != "GET":
        raise _Refused(HTTPStatus.METHOD_NOT_ALLOWED)
    hosts = (text.strip() for name, _, text in (line.partition(":") for line in lines) if name.lower() == "host")
    return parts[1], next(hosts, "")


def _plain(code: HTTPStatus) -> Answer:
    return code, f"{code.phrase}\n".encode(), "text/plain"


def _settle(future: "asyncio.Future[Answer]", answer: Answer) -> None:
    if not future.done():
        future.set_result(answer)
