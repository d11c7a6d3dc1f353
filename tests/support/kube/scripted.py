"""An HTTP server on loopback that plays the answers of a test, one per request, and records the requests.

One rule: the server knows nothing of Kubernetes; the test decides which answers are right.
"""

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import orjson

from tests.support.waiting import patient


@dataclass(frozen=True)
class ReceivedRequest:
    """A request as the server received it."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: Any
    connection: int
    """The client's port; it identifies the connection."""


@dataclass
class Answer:
    """An answer to send. With `lines`, the answer is a chunked stream. `cut` breaks the connection before the answer
    ends.
    """

    status: int = 200
    body: Any = None
    headers: dict[str, str] = field(default_factory=dict)
    lines: list[Any] | None = None
    hold: threading.Event | None = None
    """An event to wait for. A stream waits before its end, a body before its beginning."""
    cut: bool = False


Script = Callable[[ReceivedRequest], Answer]


class Player(BaseHTTPRequestHandler):
    """Answers the requests of one connection from the script."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    timeout = 0.5
    """Seconds until an idle connection is closed; it is short, so that the server can stop at the end of a test."""
    script: "ScriptedServer"

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: the output of a test shows only what the test prints."""

    def answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        url = urlsplit(self.path)
        received = ReceivedRequest(
            self.command,
            url.path,
            dict(parse_qsl(url.query)),
            dict(self.headers.items()),
            orjson.loads(body) if body else None,
            self.client_address[1],
        )
        with contextlib.suppress(OSError):
            self.send(self.script.next_answer(received))

    def send(self, answer: Answer) -> None:
        if answer.status == 0:
            self.cut()
        elif answer.lines is None:
            self.wait(answer.hold)
            self.send_body(answer)
        else:
            self.send_stream(answer, answer.lines)

    def send_body(self, answer: Answer) -> None:
        body = answer.body if isinstance(answer.body, bytes) else orjson.dumps(answer.body)
        self.head(answer, {"Content-Length": str(len(body))})
        self.wfile.write(body[: len(body) // 2] if answer.cut else body)
        if answer.cut:
            self.cut()

    def send_stream(self, answer: Answer, lines: list[Any]) -> None:
        self.head(answer, {"Transfer-Encoding": "chunked"})
        for line in lines:
            if isinstance(line, threading.Event):
                self.wait(line)
            else:
                piece = line if isinstance(line, bytes) else orjson.dumps(line) + b"\n"
                self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
        self.wait(answer.hold)
        if answer.cut:
            self.cut()
        else:
            self.wfile.write(b"0\r\n\r\n")

    def head(self, answer: Answer, framing: dict[str, str]) -> None:
        self.send_response(answer.status)
        for name, value in {"Content-Type": "application/json", **framing, **answer.headers}.items():
            self.send_header(name, value)
        self.end_headers()

    def wait(self, event: threading.Event | None) -> None:
        while event is not None and not event.wait(0.02) and not self.script.stopping.is_set():
            pass

    def cut(self) -> None:
        self.close_connection = True
        self.connection.shutdown(socket.SHUT_RDWR)

    do_GET = do_POST = do_PATCH = do_DELETE = answer  # noqa: N815 - the names http.server calls


class ScriptedServer:
    """Plays `answers` in order, then repeats `otherwise`; a script may also be a function of the request."""

    def __init__(self) -> None:
        self.answers: list[Answer | Script] = []
        self.otherwise: Answer | Script = Answer(500, {"kind": "Status", "message": "not in the script"})
        self.requests: list[ReceivedRequest] = []
        self.changed = threading.Condition()
        self.stopping = threading.Event()
        player = type("BoundPlayer", (Player,), {"script": self})
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), player)
        self._http.daemon_threads = False
        self._thread = threading.Thread(target=lambda: self._http.serve_forever(0.02), name="scripted-server")

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._http.server_port}"

    def play(self, *answers: Answer | Script) -> None:
        """Append answers to the script."""
        with self.changed:
            self.answers.extend(answers)

    def wait_requests(self, count: int) -> list[ReceivedRequest]:
        """Return the requests so far, once there are `count` of them."""
        with self.changed:
            enough = self.changed.wait_for(lambda: len(self.requests) >= count, patient())
            assert enough, f"{len(self.requests)} requests, not {count}"
            return list(self.requests)

    def next_answer(self, received: ReceivedRequest) -> Answer:
        with self.changed:
            self.requests.append(received)
            self.changed.notify_all()
            answer = self.answers.pop(0) if self.answers else self.otherwise
        return answer if isinstance(answer, Answer) else answer(received)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self.stopping.set()
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()


@contextlib.contextmanager
def running() -> Iterator[ScriptedServer]:
    """Run a server with an empty script and stop it at the end."""
    server = ScriptedServer()
    server.start()
    try:
        yield server
    finally:
        server.stop()


def kubeconfig(folder: Path, url: str, token: str = "a-token") -> Path:
    """Write a kubeconfig for a server, with a bearer token, and return its path."""
    path = folder / "kubeconfig"
    path.write_bytes(
        orjson.dumps(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "here",
                "clusters": [{"name": "here", "cluster": {"server": url}}],
                "users": [{"name": "me", "user": {"token": token}}],
                "contexts": [{"name": "here", "context": {"cluster": "here", "user": "me"}}],
            }
        )
    )
    return path


def status(code: int, reason: str = "", message: str = "", **details: Any) -> Answer:
    """Return a metav1.Status as an answer."""
    body = {"kind": "Status", "apiVersion": "v1", "code": code, "reason": reason, "message": message or reason}
    return Answer(code, {**body, "details": details} if details else body)


def listing(*items: Any, resource_version: str = "1", token: str = "") -> Answer:
    """Return the answer to a list request."""
    metadata = {"resourceVersion": resource_version, **({"continue": token} if token else {})}
    return Answer(body={"kind": "List", "metadata": metadata, "items": list(items)})


def pod(name: str, resource_version: int = 1, uid: str = "", **labels: str) -> dict[str, Any]:
    """Return a minimal pod."""
    metadata = {"name": name, "namespace": "a", "uid": uid or f"uid-{name}", "resourceVersion": str(resource_version)}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {**metadata, "labels": labels}}
