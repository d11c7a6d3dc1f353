"""Whether a coordinator is well, and what the queues look like, over HTTP.

One rule: read-only: it changes nothing, and what it knows it knows from looking.

    /healthz   200 while the process runs
    /readyz    200 when it has seen the cluster and nothing is failing, else 503 with the reason
    /status    JSON: identity of the leader, epoch, counts, what is failing
    /v1/...    JSON: the queues (coordinator.answers)
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import orjson

from coordinator.answers import Answerer, waits
from coordinator.errors import CoordinatorError
from coordinator.reading import Reading
from coordinator.remote import IDENTITY
from coordinator.serve import Coordinator

ANY_PORT = -1
LOOPBACK = ("127.0.0.1", "::1", "localhost")


def status(coordinator: Coordinator) -> dict[str, Any]:
    """What /status says."""
    leadership, counts = coordinator.leadership, coordinator.counts
    return {
        "leading": leadership.leading,
        "leader": leadership.holder,
        "epoch": leadership.epoch,
        "synced": coordinator.watches.synced,
        "failing": _failing(coordinator),
        "jobs": len(coordinator.watches.jobs.values()),
        "routed": counts.routed,
        "picked": counts.picked,
        "dispatched": counts.dispatched,
        "rebuilds": counts.rebuilds,
    }


def about(coordinator: Coordinator) -> dict[str, Any]:
    """What /v1/status adds to the numbers of the queues."""
    return {
        "leader": coordinator.leadership.holder,
        "answeredBy": coordinator.leadership.identity,
        "synced": coordinator.watches.synced,
        "failing": _failing(coordinator),
        "waits": waits(coordinator.watches.jobs.values()),
    }


def policies(coordinator: Coordinator) -> dict[str, str]:
    """The stop policy of every queue that somebody created."""
    return {queue.metadata.name: queue.spec.stop_policy for queue in coordinator.watches.queues.values()}


@contextmanager
def serving(coordinator: Coordinator, port: int, reading: Reading | None = None) -> Iterator[int]:
    """Answer at a port of the settings' address meanwhile, and have the Lease say so; the port. 0 answers nowhere, -1
    at any free one. Without a `reading` there is no /v1. CoordinatorError names a port that is in use."""
    if port == 0:
        yield 0
        return
    address = coordinator.settings.health_address
    try:
        server = ThreadingHTTPServer((address, max(0, port)), _handler(coordinator, reading))
    except OSError as error:
        raise CoordinatorError(
            f"health port {address}:{port}: {error.strerror}; choose another with --health-port"
        ) from error
    bound = int(server.server_address[1])
    if reading is not None and address in LOOPBACK:
        coordinator.leadership.address = f"http://127.0.0.1:{bound}"
    thread = threading.Thread(target=server.serve_forever, name="health")
    thread.start()
    try:
        yield bound
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _failing(coordinator: Coordinator) -> str:
    parts = (coordinator.failing, coordinator.watches.failing, coordinator.leadership.failing)
    return "; ".join(dict.fromkeys(part for part in parts if part))


def _handler(coordinator: Coordinator, reading: Reading | None) -> type[BaseHTTPRequestHandler]:
    answerer = Answerer(reading, coordinator.watches.jobs.get, lambda: about(coordinator)) if reading else None

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            match self.path:
                case "/healthz":
                    self._answer(200, b"ok\n", "text/plain")
                case "/readyz":
                    failing = _failing(coordinator) or ("" if coordinator.watches.synced else "not synced yet")
                    self._answer(503 if failing else 200, (failing or "ok").encode() + b"\n", "text/plain")
                case "/status":
                    self._json(200, status(coordinator))
                case path if answerer is not None and path.startswith("/v1/"):
                    self._json(*answerer.answer(path))
                case _:
                    self._answer(404, b"try /healthz, /readyz or /status\n", "text/plain")

        def _json(self, code: int, document: Any) -> None:
            self._answer(code, orjson.dumps(document) + b"\n", "application/json")

        def _answer(self, code: int, body: bytes, kind: str) -> None:
            self.send_response(code)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.send_header(IDENTITY, coordinator.leadership.identity)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Probes are not worth a line."""

    return Handler
