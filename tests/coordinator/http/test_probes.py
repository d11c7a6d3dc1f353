"""The answers to health probes, and the error for a port in use."""

import json
import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing

import pytest

from coordinator.errors import CoordinatorError
from coordinator.http import coordinator_server
from coordinator.leader.coordinator import Coordinator
from coordinator.port_settings import ANY_PORT
from coordinator.settings import Settings
from kube.client import KubernetesCluster
from tests.doubles.memory_store import MemoryStore
from tests.doubles.memory_work import MemoryWork
from tests.support.coordinator import asking
from tests.support.waiting import SECONDS


@pytest.fixture
def coordinator(embedded_cluster: KubernetesCluster, namespace: str) -> Coordinator:
    """Return a coordinator that has not been started."""
    store = MemoryStore(lambda *_: None)
    work = MemoryWork(lambda: 0.0, store.epoch, lambda _: None)
    return Coordinator(embedded_cluster, store, work, Settings(lease_namespace=namespace))


@pytest.fixture
def port(coordinator: Coordinator) -> Iterator[int]:
    with coordinator_server.serving(coordinator, ANY_PORT) as port:
        yield port


def ask(port: int, path: str, headers: Mapping[str, str] | None = None) -> tuple[int, str]:
    try:
        request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", headers=dict(headers or {}))
        with urllib.request.urlopen(request, timeout=SECONDS) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_healthz_succeeds_before_readyz(port: int, coordinator: Coordinator) -> None:
    assert ask(port, "/healthz") == (200, "ok\n")
    code, text = ask(port, "/readyz")
    assert (code, text.splitlines()[:2]) == (503, ["[+]ping ok", "[-]cache/torchjobs failed: not read yet"])
    assert text.endswith("\nreadyz check failed\n")
    headers = asking.headers(coordinator.cluster)
    assert ask(port, "/elsewhere", headers) == (404, "try /healthz, /readyz or /status\n")


def test_readyz_succeeds_once_synced_whether_redis_is_away_or_not(port: int, coordinator: Coordinator) -> None:
    for informer in coordinator.watches.informers:
        informer.start()
    try:
        assert all(informer.wait_synced(SECONDS) for informer in coordinator.watches.informers)
        assert ask(port, "/readyz") == (200, "ok\n")
        coordinator.failing = "Redis at redis://127.0.0.1:6379/0 does not answer"
        assert ask(port, "/readyz") == (200, "ok\n")
        code, text = ask(port, "/readyz?verbose")
        assert code == 200
        assert "[+]queues ok (Redis at redis://127.0.0.1:6379/0 does not answer)" in text.splitlines()
        assert text.endswith("\nreadyz check passed\n")
        coordinator.failing, coordinator.redis.unfit = "", "Redis is full"
        assert "[+]queues ok (Redis is full)" in ask(port, "/readyz?verbose")[1].splitlines()
        coordinator.stop.set()
        assert "[-]shutdown failed: the process is stopping" in ask(port, "/readyz")[1].splitlines()
    finally:
        for informer in coordinator.watches.informers:
            informer.stop()


def test_status_is_answered_as_json(port: int, coordinator: Coordinator) -> None:
    coordinator.counts.picked = 7
    coordinator.leadership.step()
    code, text = ask(port, "/status", asking.headers(coordinator.cluster))
    found = json.loads(text)
    assert (code, found["leading"], found["epoch"], found["picked"]) == (200, True, 1, 7)
    assert found["leader"] == coordinator.leadership.holder != ""
    assert found["failing"] == ""


def test_a_port_in_use_is_an_error_that_names_it(coordinator: Coordinator) -> None:
    with closing(socket.socket()) as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with (
            pytest.raises(CoordinatorError, match=rf"127\.0\.0\.1:{port}.*in use; choose another health_port"),
            coordinator_server.serving(coordinator, port),
        ):
            pass


def test_port_0_starts_no_server(coordinator: Coordinator) -> None:
    with coordinator_server.serving(coordinator, 0) as port:
        assert port == 0
        assert "health" not in {thread.name for thread in threading.enumerate()}


def test_probes_are_answered_with_few_threads_under_a_flood_of_requests(port: int) -> None:
    with ExitStack() as stack:
        for _ in range(200):
            connection = stack.enter_context(closing(socket.create_connection(("127.0.0.1", port), timeout=SECONDS)))
            connection.sendall(b"GET /status HTTP/1.1\r\nHost: x")  # the rest of the request never comes
        assert ask(port, "/healthz") == (200, "ok\n")
        assert threading.active_count() < 40
