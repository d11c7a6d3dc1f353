"""The coordinator's HTTP server keeps its limits, and answers probes while all other capacity is in use."""

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import pytest

from coordinator.http.bounded_server import Answer, HttpServer, Question, ServerLimits
from tests.support.waiting import SECONDS, until

pytestmark = pytest.mark.servers

SMALL = ServerLimits(
    connections=40, connections_of_address=20, answers=3, answers_of_address=2, threads=2, rest=0.0, busy_seconds=0.0
)
BUSY = b"HTTP/1.1 503 Service Unavailable\r\n"


class Place:
    """A server whose slow answers wait until a gate opens."""

    def __init__(self, limits: ServerLimits) -> None:
        self.gate = threading.Event()
        self.begun: list[str] = []
        self.body = b"done\n"
        server = HttpServer(self.quick, self.slow, lambda: {"Who": "me"}, limits)
        self.running: Callable[[], AbstractContextManager[int]] = lambda: server.running("127.0.0.1", 0)
        self.port = 0

    def quick(self, question: Question) -> Answer | None:
        return Answer(200, b"ok\n", "text/plain") if question.path == "/healthz" else None

    def slow(self, question: Question) -> Answer:
        self.begun.append(question.path)
        assert self.gate.wait(SECONDS)
        return Answer(200, self.body, "text/plain")

    def connect(self, source: str = "127.0.0.1") -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=SECONDS, source_address=(source, 0))

    def ask(self, path: str, source: str = "127.0.0.1", more: str = "") -> socket.socket:
        """Return a connection on which a request was sent."""
        connection = self.connect(source)
        connection.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\n{more}\r\n".encode())
        return connection

    def answer(self, path: str, source: str = "127.0.0.1") -> bytes:
        with self.ask(path, source) as connection:
            return whole(connection)


def whole(connection: socket.socket) -> bytes:
    """Return all bytes that the server sends until it closes the connection; empty if it closes without an answer."""
    found = b""
    with contextlib.suppress(ConnectionError):
        while piece := connection.recv(65536):
            found += piece
    return found


@contextlib.contextmanager
def started(limits: ServerLimits) -> Iterator[Place]:
    place = Place(limits)
    with place.running() as place.port:
        try:
            yield place
        finally:
            place.gate.set()


@pytest.fixture
def place() -> Iterator[Place]:
    with started(SMALL) as found:
        yield found


def test_a_request_gets_status_headers_and_body(place: Place) -> None:
    place.gate.set()
    head, _, body = place.answer("/v1/queues").partition(b"\r\n\r\n")
    assert body == b"done\n"
    assert head.split(b"\r\n") == [b"HTTP/1.1 200 OK", b"Content-Type: text/plain", b"Content-Length: 5",
                                   b"Connection: close", b"Who: me"]  # fmt: skip


def test_probes_are_answered_while_all_threads_and_the_queue_are_busy(place: Place) -> None:
    with contextlib.ExitStack() as stack:
        for path, source in (("/a", "127.0.0.1"), ("/b", "127.0.0.1"), ("/c", "127.0.0.2")):
            stack.enter_context(place.ask(path, source))
        until(lambda: len(place.begun) == 2)
        until(lambda: place.answer("/d", "127.0.0.3").startswith(BUSY))
        busy = place.answer("/e", "127.0.0.3")
        assert b"\r\nRetry-After: 1\r\n" in busy
        assert b'"message":"too many requests' in busy
        before = threading.active_count()
        for _ in range(100):
            stack.enter_context(place.ask("/f", "127.0.0.4"))
            stack.enter_context(place.connect("127.0.0.5"))
        assert place.answer("/healthz").endswith(b"ok\n")
        assert threading.active_count() < before + 50, "connections take no threads; other tests may start a few"
    assert not {"/d", "/e", "/f"} & {*place.begun}


def test_one_address_cannot_use_all_answers(place: Place) -> None:
    with place.ask("/a"), place.ask("/b"):
        until(lambda: len(place.begun) == 2)
        assert place.answer("/c").startswith(BUSY)
        with place.ask("/d", "127.0.0.2") as other:
            place.gate.set()
            assert whole(other).endswith(b"done\n")


def test_the_oldest_connection_of_an_address_is_closed_beyond_its_limit(place: Place) -> None:
    with contextlib.ExitStack() as stack:
        elsewhere = stack.enter_context(place.connect("127.0.0.2"))
        idle = [stack.enter_context(place.connect()) for _ in range(SMALL.connections_of_address + 5)]
        assert [whole(each) for each in idle[:5]] == [b""] * 5
        for connection in (elsewhere, idle[-1]):
            connection.sendall(b"GET /healthz HTTP/1.1\r\n\r\n")
            assert whole(connection).endswith(b"ok\n")


def test_the_oldest_connection_is_closed_beyond_the_limit_of_all_addresses() -> None:
    with started(SMALL) as place, contextlib.ExitStack() as stack:
        idle = [stack.enter_context(place.connect(f"127.0.1.{n}")) for n in range(1, SMALL.connections + 6)]
        assert [whole(each) for each in idle[:5]] == [b""] * 5
        assert place.answer("/healthz").endswith(b"ok\n")


def test_the_request_of_a_closed_connection_is_not_processed(place: Place) -> None:
    with contextlib.ExitStack() as stack:

        def waits(path: str) -> bool:
            connection = stack.enter_context(place.ask(path, "127.0.0.4"))
            connection.settimeout(0.2)
            try:
                return not connection.recv(100)
            except TimeoutError:
                return True

        for path, source in (("/a", "127.0.0.1"), ("/b", "127.0.0.2")):
            stack.enter_context(place.ask(path, source))
        until(lambda: len(place.begun) == 2)
        with place.ask("/gone", "127.0.0.3"):
            until(lambda: place.answer("/d", "127.0.0.4").startswith(BUSY))
        until(lambda: waits("/next"))
        place.gate.set()
        until(lambda: "/next" in place.begun)
    assert "/gone" not in place.begun


@pytest.mark.parametrize("sent", [b"", b"GET /healthz HTTP/1.1\r\nHost: x\r\n"])
def test_a_slow_request_is_closed_after_its_time(sent: bytes) -> None:
    with started(ServerLimits(head_seconds=0.2)) as place, place.connect() as connection:
        connection.sendall(sent)
        assert whole(connection) == b""


def test_a_client_that_does_not_read_is_closed_after_its_time() -> None:
    with started(ServerLimits(seconds=0.5, answers=1)) as place:
        place.gate.set()
        place.body = b"x" * 50_000_000
        with place.ask("/large"):
            until(lambda: place.begun)
            place.body = b"done\n"
            until(lambda: place.answer("/small").endswith(b"done\n"))


def test_threads_rest_in_proportion_to_their_work() -> None:
    with started(ServerLimits(threads=1, rest=1e9, longest_rest=SECONDS, seconds=0.3)) as place:
        place.gate.set()
        assert place.answer("/first").endswith(b"done\n")
        assert place.answer("/second") == b""
        assert place.begun == ["/first"]
        before = time.monotonic()
    assert time.monotonic() - before < SECONDS, "a resting thread does not delay the end of the server"


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        (b"POST / HTTP/1.1\r\n\r\n", b"405"),
        (b"hello\r\n\r\n", b"400"),
        (b"GET http://x/ HTTP/1.1\r\n\r\n", b"400"),
        (b"GET / HTTP/9\r\n\r\n", b"400"),
        (b"\r\n\r\n", b"400"),
        (b"\x16\x03\x01\x00\r\n\r\n", b"400"),
        (b"GET /healthz HTTP/1.1\r\nX: " + b"y" * 20_000 + b"\r\n\r\n", b"431"),
        (b"GET /" + b"y" * 20_000, b"431"),
    ],
    ids=lambda value: repr(value[:20]),
)
def test_a_malformed_request_is_rejected(place: Place, sent: bytes, code: bytes) -> None:
    with place.connect() as connection:
        connection.sendall(sent)
        assert whole(connection)[9:12] in (code, b"")  # the unread rest of an overlong head resets the connection
    assert place.answer("/healthz").endswith(b"ok\n")
