"""An HTTP server for small read-only answers, which costs its process little whatever its clients do.

One rule: every number is bounded: connections, also of one address; requests that wait for an answer; threads that make
answers, and the share of time they work; how long a client may take. What is beyond a bound is closed, or answered with
503 and Retry-After.

Two kinds of answers: `quick` ones are made by the thread that reads the requests, and wait for nothing. So probes are
answered while all other capacity is taken. All others are made by a few threads.
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
class Limits:
    """The bounds of a server."""

    connections: int = 256
    """Beyond these the oldest is closed for each new one."""
    connections_of_address: int = 64
    answers: int = 32
    """Requests that wait for an answer, or whose answer is on its way."""
    answers_of_address: int = 16
    threads: int = 4
    rest: float = 3.0
    """How long a thread rests after an answer, as a multiple of the CPU time that the answer took: with four threads
    answers take no more than about one thread's share of the process."""
    longest_rest: float = 2.0
    busy_seconds: float = 1.0
    """How long a 503 is held back: a client that asks again at once costs little."""
    head_bytes: int = 16 * 1024
    head_seconds: float = 5.0
    """How long the head of a request may take to come."""
    seconds: float = 15.0
    """How long a connection may be open."""


LIMITS = Limits()
_AT_ONCE = 16
"""Connections accepted in a row, before those that are open are served: far fewer than an address may have open, so
that no connection is closed for newer ones before it had its turn."""
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
    answered: "asyncio.Future[Answer]"


class HttpServer:
    """Answers GET requests, one for each connection."""

    def __init__(
        self,
        quick: Callable[[Question], Answer | None],
        slow: Callable[[Question], Answer],
        headers: Callable[[], Mapping[str, str]],
        limits: Limits = LIMITS,
    ) -> None:
        self._quick = quick
        """None for a question that a thread has to answer."""
        self._slow = slow
        self._headers = headers
        self._limits = limits
        self._open: dict[asyncio.StreamWriter, str] = {}
        """Connections with their addresses, oldest first."""
        self._answers: Counter[str] = Counter()
        self._waiting: queue.SimpleQueue[_Request | None] = queue.SimpleQueue()
        self._tasks: set[asyncio.Task[None]] = set()
        self._over = threading.Event()

    @contextmanager
    def running(self, address: str, port: int) -> Iterator[int]:
        """Answer in threads of its own, for as long as the block lasts; the port. OSError."""
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
        taking = asyncio.start_server(self._serve, sock=listener, limit=self._limits.head_bytes, backlog=_AT_ONCE)
        server = self._loop.run_until_complete(taking)
        listener.listen(_BACKLOG)  # asyncio accepts as many at once as it lets wait
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
        for each in self._tasks:
            each.cancel()
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
        own = [writer for writer, known in self._open.items() if known == address]
        if len(own) >= self._limits.connections_of_address:
            oldest = own[0]
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
            self._answers += Counter()  # without addresses of which nothing waits

    def _has_room(self, address: str) -> bool:
        limits = self._limits
        return self._answers.total() < limits.answers and self._answers[address] < limits.answers_of_address

    async def _answer(self, question: Question, reader: asyncio.StreamReader) -> Answer:
        """What a thread answers. EOFError if the client leaves meanwhile."""
        answered: asyncio.Future[Answer] = self._loop.create_future()
        self._waiting.put(_Request(question, answered))
        leaving = asyncio.ensure_future(reader.read(1))
        try:
            await asyncio.wait((answered, leaving), return_when=asyncio.FIRST_COMPLETED)
            if not answered.done() and not leaving.result():
                raise EOFError("the client left before its answer was made")
            return await answered
        finally:
            answered.cancel()
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
            if request.answered.done():
                continue  # its client has left, or has waited for too long
            before = time.thread_time()
            answer = self._slow(request.question)
            self._loop.call_soon_threadsafe(_settle, request.answered, answer)
            self._over.wait(min(self._limits.longest_rest, self._limits.rest * (time.thread_time() - before)))


class _Refused(Exception):
    """A request that is none of those answered here."""

    def __init__(self, code: HTTPStatus) -> None:
        super().__init__(code.phrase)
        self.code = code


def _read(head: bytes) -> Question:
    """What the head of a request asks for. _Refused."""
    first, *lines = head.decode("latin-1").split("\r\n")
    words = first.split(" ")
    if len(words) != 3 or not words[2].startswith("HTTP/1.") or not words[1].startswith("/"):
        raise _Refused(HTTPStatus.BAD_REQUEST)
    if words[0] != "GET":
        raise _Refused(HTTPStatus.METHOD_NOT_ALLOWED)
    hosts = (text.strip() for name, _, text in (line.partition(":") for line in lines) if name.lower() == "host")
    return words[1], next(hosts, "")


def _plain(code: HTTPStatus) -> Answer:
    return code, f"{code.phrase}\n".encode(), "text/plain"


def _settle(answered: "asyncio.Future[Answer]", answer: Answer) -> None:
    if not answered.done():
        answered.set_result(answer)
