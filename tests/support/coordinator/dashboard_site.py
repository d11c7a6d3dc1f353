"""A dashboard's server on loopback, in a thread of its own, and a browser without a script for it."""

import asyncio
import contextlib
import http.client
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from http.cookies import SimpleCookie
from urllib.parse import urlencode

import orjson

from coordinator.dashboard import server
from coordinator.dashboard.readings import Reading
from coordinator.dashboard.server import Frame
from coordinator.dashboard.visitors import Visitors
from tests.support.waiting import patient

ADDRESS = "127.0.0.1"


class FixedReadings:
    """Readings that a test makes."""

    def __init__(self, reading: Reading | None = None) -> None:
        self.present = reading or Reading(number=1, at=1_700_000_000.0, jobs_version=1)
        self.on_reading: Callable[[], object] = lambda: None

    def newest(self) -> Reading:
        """Return the present reading."""
        return self.present

    def read(self, **values: object) -> None:
        """Make the next reading."""
        changed = {"number": self.present.number + 1, "jobs_version": self.present.jobs_version + 1, **values}
        self.present = replace(self.present, **changed)  # type: ignore[arg-type]
        self.on_reading()


def running(
    visitors: Visitors, readings: FixedReadings, hosts: frozenset[str] = frozenset()
) -> contextlib.AbstractContextManager[int]:
    """Answer browsers while the block runs; yield the port."""
    return answering(Frame("here", ADDRESS, visitors, readings, hosts, patient(10)))  # type: ignore[arg-type]


@contextlib.contextmanager
def answering(frame: Frame) -> Iterator[int]:
    """Answer browsers while the block runs; yield the port."""
    ready, started = threading.Event(), list[tuple[int, asyncio.AbstractEventLoop, asyncio.Event]]()

    async def answer() -> None:
        stopped = asyncio.Event()

        async def wait() -> None:
            await stopped.wait()

        def note(port: int) -> None:
            started.append((port, asyncio.get_running_loop(), stopped))
            ready.set()

        await server.serve(frame, 0, note, wait)

    thread = threading.Thread(target=lambda: asyncio.run(answer()))
    thread.start()
    assert ready.wait(patient(30))
    [(port, loop, stopped)] = started
    try:
        yield port
    finally:
        loop.call_soon_threadsafe(stopped.set)
        thread.join(patient(30))
        assert not thread.is_alive()


@dataclass
class Answer:
    """An answer to a browser."""

    code: int
    headers: Mapping[str, str]
    text: str
    cookies: list[str]


@dataclass
class Browser:
    """A browser without a script. It keeps cookies, and says where its requests come from."""

    port: int
    headers: dict[str, str] = field(default_factory=dict)
    """More headers of every request, as a proxy adds them."""
    cookies: dict[str, str] = field(default_factory=dict)
    host: str = ""

    def ask(self, method: str, path: str, body: bytes | None = None, /, **headers: str) -> Answer:
        """Return the answer to a request; redirects are not followed."""
        connection = self._send(method, path, body, headers)
        with contextlib.closing(connection):
            answer = connection.getresponse()
            given = answer.headers.get_all("Set-Cookie") or []
            for name, morsel in SimpleCookie("\r\n".join(given)).items():
                self.cookies[name] = morsel.value
            return Answer(answer.status, dict(answer.headers), answer.read().decode(), given)

    def get(self, path: str, **headers: str) -> Answer:
        """Return a page."""
        return self.ask("GET", path, **headers)

    def post(self, path: str, fields: Mapping[str, str], **headers: str) -> Answer:
        """Send a form."""
        form = {"Content-Type": "application/x-www-form-urlencoded", **headers}
        return self.ask("POST", path, urlencode(fields).encode(), **form)

    @contextlib.contextmanager
    def stream(self, path: str, secret: str) -> Iterator[http.client.HTTPResponse]:
        """Yield the stream of changes of a page of which nothing is shown yet."""
        body = orjson.dumps({"page": path, "shown": {}})
        connection = self._send("POST", "/stream", body, {"Torchq-Secret": secret})
        with contextlib.closing(connection):
            yield connection.getresponse()

    def _send(
        self, method: str, path: str, body: bytes | None, headers: Mapping[str, str]
    ) -> http.client.HTTPConnection:
        connection = http.client.HTTPConnection(ADDRESS, self.port, timeout=patient(60))
        host = self.host or f"{ADDRESS}:{self.port}"
        scheme = "https" if self.headers.get("X-Forwarded-Proto") == "https" else "http"
        sent = {"Host": host, **({"Origin": f"{scheme}://{host}"} if method == "POST" else {}), **self.headers}
        if self.cookies:
            sent["Cookie"] = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        connection.request(method, path, body, {**sent, **headers})
        return connection


def secret_of(page: str) -> str:
    """Return the value that a page shows for what changes something."""
    return page.partition('data-secret="')[2].partition('"')[0]


def messages(stream: http.client.HTTPResponse) -> Iterator[bytes]:
    """Yield the messages of a stream but its signs of life, until its end."""
    while line := stream.readline():
        if line.strip() and not line.startswith(b":"):
            yield line.strip()
