"""A cluster of real processes behind faulty connections: coordinators, workers, Redis, an API server and a node.

Redis is one server, or a Sentinel installation.

One rule: every process is a child of this process, and is reached over HTTP and Redis only.
"""

import contextlib
import os
import shutil
import socket
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import redis

from coordinator.local import stack
from coordinator.rbac.permissions import LEASE
from crds.api_resources import LEASES, NODES, TENANT_QUEUES
from embedded.layout import Layout
from embedded.redis import server_program
from kube import client, errors
from kube.client import KubernetesCluster
from kube.settings import ConnectionSettings, RetrySettings
from tests.chaos import stores
from tests.chaos.parts import Part, Parts, children
from tests.chaos.proxy import Network
from tests.support import ports
from tests.support.acceptance.stack import clean_environment, torchq_command

COORDINATORS = ("coordinator-a", "coordinator-b")
CLIENTS = (*COORDINATORS, "workers")
START_SECONDS = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """The settings in seconds from which the promises of a run follow."""

    lease: float = 4.0
    deadline: float = 3.0
    renew: float = 1.0
    running_lease: float = 5.0
    resync: float = 5.0

    @property
    def longest_lease(self) -> float:
        """The longest lease. A process that sleeps longer has lost all its leases."""
        return max(self.lease, self.running_lease)

    def environment(self) -> dict[str, str]:
        """Return the settings as environment variables of the processes."""
        return {
            "TORCHQ_LEASE_SECONDS": str(self.lease),
            "TORCHQ_RENEW_DEADLINE": str(self.deadline),
            "TORCHQ_RENEW_SECONDS": str(self.renew),
            "TORCHQ_RUNNING_LEASE_SECONDS": str(self.running_lease),
            "TORCHQ_RESYNC_SECONDS": str(self.resync),
        }


@dataclass
class Arena:
    """A cluster in a folder. Only the main thread may use it."""

    folder: Path
    seed: int
    times: Times
    cpus: int
    workers: int = 2
    more: Mapping[str, str] = field(default_factory=dict)
    """More settings of coordinators and workers, as environment variables."""
    sentinels: bool = False
    """Whether Redis is a Sentinel installation."""

    def __post_init__(self) -> None:
        self.parts = Parts()
        self._kept = contextlib.ExitStack()
        self.layout = Layout(self.folder / "data")
        self.layout.root.mkdir(parents=True, mode=0o700)
        self.layout.logs("any").parent.mkdir()
        self.records = self.folder / "records"
        self.records.mkdir()
        self.network: Network | None = None
        self._looking: KubernetesCluster | None = None
        self.store: stores.Store = self._sentinels() if self.sentinels else stores.OneServer(self.layout, self._port)
        self.url_files = {name: self.folder / f"{name}.redis-url" for name in CLIENTS}

    def start(self) -> None:
        """Start all processes. Each process is started after the processes that it needs answer."""
        port = self._kept.enter_context(ports.reserve())  # a killed API server starts again on this port
        self._python("apiserver", "embedded.apiserver.api_server", "--data", str(self.layout.root), "--port", str(port))
        self.until(lambda: self.layout.kubeconfig.exists() and _accepts(port), "the API server")
        stack.install(self.api())
        self.store.start(self._add)
        self.until(self.store.is_ready, "Redis")
        kubeconfig = ["--kubeconfig", str(self.layout.kubeconfig)]
        size = ["--cpus", str(self.cpus), "--memory", "64Gi", "--gpus", "0", "--stop-pods"]
        self._python("node", "embedded.node.node", "--data", str(self.layout.root), *kubeconfig, *size)
        api = self.api()
        self.until(lambda: api.list(NODES).items, "the node")
        self.network = Network(self.seed, self.layout.kubeconfig, server_program.socket_path(self.layout), [*CLIENTS])
        for name in COORDINATORS:
            self._add(name, torchq_command("coordinator"), self._desk(name))
        self.add_workers("workers")
        self.until(self.leader, "a leader")

    def add_workers(self, name: str) -> None:
        """Start a `torchq worker`, as a further host would, and wait until its processes run."""
        self._add(name, torchq_command("worker", "--processes", str(self.workers)), self._desk("workers"))
        self.until(lambda: len(children(self.parts[name].pid)) == self.workers, name)

    def api(self, timeout: float = 5.0) -> KubernetesCluster:
        """Return a new client of the API server that bypasses the proxies."""
        settings = ConnectionSettings(
            kubeconfig=str(self.layout.kubeconfig), read_timeout=timeout, retries=RetrySettings(attempts=1)
        )
        return client.connect(settings)

    def redis(self) -> "redis.Redis":
        """Return a new client, without a proxy, of the Redis that takes writes."""
        return self.store.connection()

    def charged(self) -> frozenset[str]:
        """Return the keys of the jobs with a reservation. Raises RedisError if no server answers."""
        with contextlib.closing(self.redis()) as connection:
            return frozenset(connection.hkeys("torchq:reservations"))  # type: ignore[arg-type]

    def leader(self) -> str:
        """Return the coordinator that holds the Lease; empty if no coordinator holds it."""
        if self._looking is None:
            self._looking = self.api(2.0)
        with contextlib.suppress(errors.ClusterError):
            spec = self._looking.get(LEASES, LEASE, "kube-system").get("spec") or {}
            holder = spec.get("holderIdentity") or ""
            return next((name for name in COORDINATORS if f"-{self.parts[name].pid}-" in holder), "")
        return ""

    def queue(self, name: str, weight: int, quota: Mapping[str, int]) -> None:
        """Create a tenant queue."""
        amounts = {key: f"{amount}m" if key == "cpu" else str(amount) for key, amount in quota.items()}
        body = {
            "apiVersion": TENANT_QUEUES.api_version,
            "kind": TENANT_QUEUES.kind,
            "metadata": {"name": name},
            "spec": {"weight": weight, "quota": amounts},
        }
        self.api().create(TENANT_QUEUES, body)

    def until(self, condition: Callable[[], Any], what: str, seconds: float = START_SECONDS) -> None:
        """Wait for the condition, and restart dead processes during the wait. Raises AssertionError after `seconds`."""
        deadline = time.monotonic() + seconds
        while True:
            self.parts.tick()
            with contextlib.suppress(errors.ClusterError, redis.RedisError):
                if condition():
                    return
            if time.monotonic() > deadline:
                raise AssertionError(f"waited {seconds:.0f} s in vain for {what}; the logs are in {self.folder}")
            time.sleep(0.05)

    def age_redis(self, kept: Path) -> None:
        """Kill Redis and replace its files by the copy of `keep_redis`. The next Redis process starts with the copy."""
        self.parts["redis"].kill(0.0)
        shutil.rmtree(self.layout.redis / "appendonlydir")
        shutil.copytree(kept, self.layout.redis / "appendonlydir")

    def keep_redis(self, kept: Path) -> bool:
        """Copy the append-only files of Redis, and return whether the copy succeeded."""
        shutil.rmtree(kept, ignore_errors=True)
        with contextlib.suppress(OSError, shutil.Error):
            shutil.copytree(self.layout.redis / "appendonlydir", kept)
            return True
        return False

    def lose_redis(self) -> None:
        """Kill Redis, with all of its replicas, and delete its files."""
        for name in self.store.names:
            self.parts[name].kill(0.0)
        stores.forget(self.store.servers)

    def stop(self) -> list[str]:
        """Stop all processes. Return what went wrong."""
        wrong = self.parts.stop()
        if self.network is not None:
            self.network.close()
        self._kept.close()
        return wrong

    def _desk(self, name: str) -> dict[str, str]:
        """Return the environment of a coordinator or of the workers, with the addresses of its own proxies."""
        assert self.network is not None
        kubeconfig = self.folder / f"{name}.kubeconfig"
        kubeconfig.touch(mode=0o600)
        kubeconfig.write_text(self.network.kubeconfig(name))
        self.url_files[name].touch(mode=0o600)
        self.url_files[name].write_text(self.store.url(name, stores.PASSWORD))
        first = 10_000 + os.getpid() % 20 * 1_000
        return clean_environment(
            TORCHQ_KUBECONFIG=str(kubeconfig),
            TORCHQ_REDIS_URL_FILE=str(self.url_files[name]),
            TORCHQ_MASTER_ADDRESS="loopback",
            TORCHQ_PORT_FIRST=str(first),
            TORCHQ_PORT_LAST=str(first + 999),
            **self.times.environment(),
            **self.more,
        )

    def _sentinels(self) -> stores.Sentinels:
        taken = [self._kept.enter_context(ports.reserve()) for _ in range(stores.PORTS)]
        return stores.Sentinels(self.folder / "sentinels", taken)

    def _port(self, client: str) -> int:
        assert self.network is not None
        return self.network.redis_port(client)

    def _python(self, name: str, module: str, *arguments: str) -> None:
        self._add(name, [sys.executable, "-m", module, *arguments])

    def _add(self, name: str, command: Sequence[str], environment: dict[str, str] | None = None) -> None:
        self.parts.add(Part(name, command, environment or clean_environment(), self.layout.logs(name)))


def _accepts(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
