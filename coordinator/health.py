"""Whether a coordinator is well, over HTTP on the loopback address.

One rule: read-only, and never waits: it shows what the coordinator knows already.

    /healthz   200 while the process runs
    /readyz    200 when it has seen the cluster and nothing is failing, else 503 with the reason
    /status    JSON: identity of the leader, epoch, counts, what is failing
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import orjson

from coordinator.errors import CoordinatorError
from coordinator.serve import Coordinator


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


@contextmanager
def serving(coordinator: Coordinator, port: int) -> Iterator[None]:
    """Answer on 127.0.0.1:`port` meanwhile; port 0 answers nowhere. CoordinatorError names a port that is in use."""
    if port == 0:
        yield
        return
    try:
        server = ThreadingHTTPServer(("127.0.0.1", port), _handler(coordinator))
    except OSError as error:
        raise CoordinatorError(
            f"health port 127.0.0.1:{port}: {error.strerror}; choose another with --health-port"
        ) from error
    thread = threading.Thread(target=server.serve_forever, name="health")
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _failing(coordinator: Coordinator) -> str:
    parts = (coordinator.failing, coordinator.watches.failing, coordinator.leadership.failing)
    return "; ".join(dict.fromkeys(part for part in parts if part))


def _handler(coordinator: Coordinator) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            match self.path:
                case "/healthz":
                    self._answer(200, b"ok\n", "text/plain")
                case "/readyz":
                    failing = _failing(coordinator) or ("" if coordinator.watches.synced else "not synced yet")
                    self._answer(503 if failing else 200, (failing or "ok").encode() + b"\n", "text/plain")
                case "/status":
                    self._answer(200, orjson.dumps(status(coordinator)) + b"\n", "application/json")
                case _:
                    self._answer(404, b"try /healthz, /readyz or /status\n", "text/plain")

        def _answer(self, code: int, body: bytes, kind: str) -> None:
            self.send_response(code)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Probes are not worth a line."""

    return Handler
