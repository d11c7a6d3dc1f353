"""Finished jobs leave nothing behind: every table, cache, key, row and folder returns to its earlier size.

The test counts elements, not bytes.
"""

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from coordinator.local import stack
from crds.api_resources import PODS, TORCHJOBS
from crds.keys import JobKey
from embedded.apiserver.api_server import ApiServer, running
from embedded.layout import Layout
from embedded.node.node import LocalNode, NodeSettings, running_node
from embedded.node.resources.machine import Machine
from kube import client
from kube.client import KubernetesCluster
from kube.settings import ConnectionSettings
from queues import redis_keys
from queues.dispatch.redis_work import RedisWork
from queues.redis import connection
from queues.storage.redis_store import RedisStore
from queues.store import StoreSettings
from queues.work import Lease
from reconcilers import observe
from tests.support.coordinator.desk import Clock
from tests.support.metered import Metered
from tests.support.queues.private_redis import redis_url

__all__ = ["redis_url"]

JOBS = 6
SECONDS = 90.0
COUNTERS = {"torchq:version", "torchq:pick", "torchq:port", "torchq:revision", "torchq:work:dispatches"}
"""Keys whose values are rising counters."""
FULL = {"redis torchq:commit": 8 + 3}
"""The size of a key that first fills up: the answers to the last eight commits, and three fields about them.
`queues/lua/lib/store.lua` writes both."""
LENGTHS = {b"list": "llen", b"hash": "hlen", b"set": "scard", b"zset": "zcard"}


class Work(RedisWork):
    """A work queue from which the test takes batches by hand."""

    def pop(self) -> list[Lease]:
        job = self._connection.lpop(redis_keys.RQ_WAITING)
        if job is None:
            return []
        data = json.loads(self._connection.hget(b"rq:job:" + job, "data"))
        self._connection.delete(b"rq:job:" + job)
        return [(JobKey.parse(key), token) for key, token in data[2][0]]


class Whole(Metered):
    """A desk over a real Redis. A real node runs its pods."""

    def __init__(self, cluster: KubernetesCluster, redis: connection.Connection, clock: Clock) -> None:
        self._redis = redis
        super().__init__(cluster, clock)
        self.work = Work(redis, clock=clock)
        self.store = self.open()

    def open(self) -> Any:
        return RedisStore(self._redis, StoreSettings(ports=(20_000, 20_999)), self.clock)


@pytest.fixture
def redis(redis_url: str) -> Iterator[connection.Connection]:
    client = connection.connect(redis_url, client_name="test")
    client.flushall()
    yield client
    client.close()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ApiServer]:
    with running(Layout(tmp_path)) as server:
        yield server


@pytest.fixture
def cluster(server: ApiServer) -> Iterator[KubernetesCluster]:
    connected = client.connect(ConnectionSettings(kubeconfig=str(server.kubeconfig)))
    stack.install(connected)
    yield connected
    connected.close()


@pytest.mark.redis_server
def test_all_tables_return_to_their_size_after_jobs_have_finished(
    server: ApiServer,
    cluster: KubernetesCluster,
    redis: connection.Connection,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(observe, "REMEMBERED", 2)
    layout = Layout(tmp_path)
    settings = NodeSettings(Machine(cpu=8_000, memory=2**33, gpus=(), storage=2**33))
    with running_node(cluster, layout, settings) as node, Whole(cluster, redis, Clock()) as desk:
        desk.queue("a")
        desk.begin()
        desk.settle()

        def census() -> dict[str, Any]:
            return {
                **_redis(redis),
                **_server(server),
                **_desk(desk),
                **_node(node, layout),
                # The pool of the server's event loop grows to its bound as calls happen to overlap.
                "threads": sum(not thread.name.startswith("asyncio_") for thread in threading.enumerate()),
            }

        _come_and_go(desk, "warm")
        before = census()
        for number in range(2):
            _come_and_go(desk, f"round{number}")
        different: dict[str, Any] = {}

        def same() -> bool:
            now = census()
            different.clear()
            different.update({name: (before.get(name), now.get(name)) for name in before | now})
            for name in [name for name, (then, later) in different.items() if then == later]:
                del different[name]
            return not different

        try:
            desk.until(same, seconds=SECONDS)
        except AssertionError:
            raise AssertionError(f"grown (before, after): {different}") from None


def _come_and_go(desk: Whole, name: str) -> None:
    """Submit some jobs and wait until all their objects are deleted."""
    container = {"name": "torch", "image": "none", "command": ["true"]}
    tasks = {"Master": {"template": {"spec": {"containers": [container]}}}}
    spec = {"tasks": tasks, "ttlSecondsAfterFinished": 1}
    keys = [desk.submit(f"{name}-{number}", "default", "a", **spec) for number in range(JOBS)]
    desk.until(lambda: all(desk.phase(key) == "Succeeded" for key in keys), seconds=SECONDS)
    desk.clock.step(10)
    desk.term.resync()
    desk.watches.mark(keys)
    desk.until(lambda: not desk.cluster.list(TORCHJOBS).items, seconds=SECONDS)
    desk.until(lambda: not desk.cluster.list(PODS).items, seconds=SECONDS)
    desk.settle()


def _redis(redis: connection.Connection) -> dict[str, int]:
    """Return the number of elements of every key."""
    found = {}
    for key in redis.keys("*"):
        name = key.decode()
        if name not in COUNTERS:
            kind = redis.type(key)
            found[f"redis {name}"] = int(getattr(redis, LENGTHS[kind])(key)) if kind in LENGTHS else 1
    return found | {name: max(most, found.get(name, 0)) for name, most in FULL.items()}


def _server(server: ApiServer) -> dict[str, int]:
    store = server._store
    rows = store._disk._database.execute("SELECT count(*) FROM objects").fetchone()[0]
    counts = {f"objects {name}": count for name, count in store.counts().items() if count}
    return {
        **counts,
        "rows": rows,
        "places": len(store._keys),
        "owners": len(store._dependents),
        "watches": len(server._watches),
    }


def _desk(desk: Whole) -> dict[str, int]:
    watches, observer = desk.watches, desk.reconciler._observer
    return {
        "coordinator jobs": len(watches.jobs.values()),
        "coordinator pods": len(watches.pods.values()),
        "coordinator pods by job": len(watches.pods._cache._groups),
        "marks": len(watches._dirty_keys),
        "names": len(watches.implied),
        "gangs": len(watches.gang_jobs.naming()) + len(watches.gang_jobs.picked) + len(watches.gang_jobs.taken),
        "worker pods": len(desk.pods.values()),
        "worker pods by job": len(desk.pods._cache._groups),
        "written": len(observer._written),
    }


def _node(node: LocalNode, layout: Layout) -> dict[str, int]:
    folder = layout.root / "pods"
    kubelet = node._kubelet
    return {
        "pods at work": len(kubelet._workers),
        "pods to clear": len(kubelet._deleted),
        "pod folders": len(list(folder.iterdir())) if folder.exists() else 0,
        "reports": len(node._reporter._reports),
        "bound": len(node._scheduler._bound),
        "logs": len(list((layout.root / "logs").glob("*"))),
    }
