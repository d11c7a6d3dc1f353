"""Clients that count their requests by verb and resource: "GET torchjobs", "PATCH torchjobs/status"."""

import threading
from collections import Counter
from typing import Any
from urllib.parse import parse_qs, urlsplit

from kube.client import KubernetesCluster
from kube.requests import Request
from tests.support.coordinator.desk import Desk

_WORDS = {"POST": "CREATE"}


def words(request: Request) -> str:
    """Return the verb and resource of a request, without names."""
    parts = urlsplit(request.path)
    steps = parts.path.strip("/").split("/")
    steps = steps[2:] if steps[0] == "api" else steps[3:]
    if not steps:
        return "DISCOVER"
    if steps[0] == "namespaces" and len(steps) > 2:
        steps = steps[2:]
    resource, name, subresource = (*steps, "", "")[:3]
    verb = _WORDS.get(request.method, request.method)
    if request.method == "GET" and not name:
        verb = "WATCH" if "watch" in parse_qs(parts.query) else "LIST"
    return f"{verb} {resource}" + (f"/{subresource}" if subresource else "")


class Wire:
    """A transport that counts requests."""

    def __init__(self, transport: Any) -> None:
        self._transport = transport
        self._lock = threading.Lock()
        self.request_counts: Counter[str] = Counter()

    def send(self, request: Request) -> Any:
        self._count(request)
        return self._transport.send(request)

    def page(self, request: Request, limit: int) -> Any:
        self._count(request)
        return self._transport.page(request, limit)

    def open(self, request: Request, **patience: Any) -> Any:
        self._count(request)
        return self._transport.open(request, **patience)

    def _count(self, request: Request) -> None:
        with self._lock:
            self.request_counts[words(request)] += 1

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


class Client(KubernetesCluster):
    """A client that counts its requests, over the connections of another client."""

    def __init__(self, cluster: KubernetesCluster) -> None:
        self.wire = Wire(cluster._transport)
        super().__init__(self.wire, cluster._settings)

    @property
    def request_counts(self) -> Counter[str]:
        """The count of all requests so far."""
        return Counter(self.wire.request_counts)


class Metered(Desk):
    """A desk whose coordinator and worker each have a counting client."""

    counting = Client

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.reconciles = 0
        self._noted: dict[str, Counter[str]] = {}

    def run_worker(self) -> int:
        """Run the worker and count its reconciles."""
        done = super().run_worker()
        self.reconciles += done
        return done

    def note(self) -> None:
        """Set the counts of requests and reconciles to zero."""
        self._noted = {"coordinator": self.watching.request_counts, "worker": self.working.request_counts}
        self.reconciles = 0

    @property
    def coordinator(self) -> Counter[str]:
        """The coordinator's requests since the last `note`."""
        return self.watching.request_counts - self._noted.get("coordinator", Counter())

    @property
    def worker(self) -> Counter[str]:
        """The worker's requests since the last `note`."""
        return self.working.request_counts - self._noted.get("worker", Counter())

    def settle(self) -> None:
        """Run coordinator and worker until more than 20 steps in a row find nothing to do."""
        idle = 0

        def still() -> bool:
            nonlocal idle
            idle = 0 if self.term.step() or self.run_worker() else idle + 1
            return idle > 20

        self.until(still)
