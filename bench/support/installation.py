"""An API server, Redis, a coordinator and workers: what `torchq coordinator` and `torchq worker` are on a cluster.

One rule: the processes and settings of production, whatever the server: the embedded one (by default), a private
kube-apiserver on etcd, or one that a kubeconfig names.
"""

import contextlib
import os
import subprocess
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from bench.support import api_counts, real_server, redis_server, stack
from bench.support.processes import Bench
from coordinator.local import stack as local_stack
from coordinator.rbac.permissions import COORDINATOR, WORKER
from crds.api_resources import NAMESPACES, TENANT_QUEUES
from kube import client, errors
from kube.client import KubernetesCluster
from kube.settings import ConnectionSettings
from queues.redis import connection
from queues.storage.redis_store import RedisStore

AGENT = "bench"
DESK_STAGE = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What to start."""

    kubeconfig: str = ""
    """Of the API server to use; empty: one of our own."""
    real: bool = False
    """Whether our own is kube-apiserver, from the folder KUBEBUILDER_ASSETS names, or the embedded one."""
    workers: int = 2
    coordinator: bool = True
    """Whether there is one; without it, the caller hands out the work."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """Variables for coordinator and workers."""


@dataclass(frozen=True, slots=True)
class Server:
    """An API server with torchq's definitions."""

    name: str
    """For people."""
    admin: KubernetesCluster
    kubeconfig: str
    """The admin's."""
    accounts: tuple[str, str]
    """The kubeconfigs of coordinator and worker."""


@dataclass(frozen=True, slots=True)
class Installation:
    """torchq at work on a server."""

    server: Server
    redis: connection.Connection
    namespace: str
    """Where jobs are to be made; its name is unique, and begins those of the queues."""

    @property
    def admin(self) -> KubernetesCluster:
        """The API, with every right."""
        return self.server.admin

    def requests(self) -> Counter[str]:
        """What the server was asked so far; empty if it does not tell."""
        try:
            return api_counts.by_code(self.admin.metrics())
        except errors.ClusterError:
            return Counter()

    def store(self) -> RedisStore:
        """A second look at the queues."""
        return RedisStore(self.redis)


@contextlib.contextmanager
def running(bench: Bench, wanted: Wanted) -> Iterator[Installation]:
    """Start it; the coordinator leads once this is entered. What was made on somebody else's server is deleted."""
    server = _server(bench, wanted)
    namespace = f"bench-{os.getpid()}"
    server.admin.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
    url = redis_server.start(bench)
    try:
        _start_desk(bench, server, {**wanted.settings, "TORCHQ_REDIS_URL": url}, wanted)
        torchq = Installation(server, connection.connect(url, client_name="torchq-bench"), namespace)
        # On a server that has had a coordinator before, the first thing a new one does is to wait for its workers.
        if wanted.coordinator:
            bench.wait(lambda: torchq.store().epoch(), "the coordinator", real_server.START_SECONDS)
        yield torchq
    finally:
        if wanted.kubeconfig:
            _clean(server.admin, namespace)


def _server(bench: Bench, wanted: Wanted) -> Server:
    if wanted.kubeconfig:
        admin = client.connect(ConnectionSettings(kubeconfig=wanted.kubeconfig, user_agent=AGENT))
        local_stack.install(admin)
        return Server(admin.server, admin, wanted.kubeconfig, (wanted.kubeconfig, wanted.kubeconfig))
    return _real(bench) if wanted.real else _embedded(bench)


def _real(bench: Bench) -> Server:
    assets = Path(os.environ.get("KUBEBUILDER_ASSETS") or ".")
    found = real_server.start(bench, assets)
    said = subprocess.run([assets / "kube-apiserver", "--version"], capture_output=True, text=True, check=True)
    accounts = (str(found.kubeconfig(COORDINATOR)), str(found.kubeconfig(WORKER)))
    name = f"kube-apiserver, {said.stdout.strip()}, on etcd"
    return Server(name, found.admin, str(found.folder / "admin.kubeconfig"), accounts)


def _embedded(bench: Bench) -> Server:
    kubeconfig = stack.start_apiserver(bench, "--port", str(bench.port()))  # the same after a restart
    admin = client.connect(ConnectionSettings(kubeconfig=kubeconfig, user_agent=AGENT))
    local_stack.install(admin)
    return Server("embedded", admin, kubeconfig, (kubeconfig, kubeconfig))


def _start_desk(bench: Bench, server: Server, settings: Mapping[str, str], wanted: Wanted) -> None:
    desk, hands = ({"TORCHQ_KUBECONFIG": each, **settings} for each in server.accounts)
    if wanted.coordinator:
        bench.start_python("coordinator", "coordinator.cli.main", "coordinator", stage=DESK_STAGE, environment=desk)
    for number in range(wanted.workers):
        arguments = ("worker", "--single")
        bench.start_python(f"worker-{number}", "coordinator.cli.main", *arguments, stage=DESK_STAGE, environment=hands)


def _clean(admin: KubernetesCluster, namespace: str) -> None:
    """The namespace takes its jobs with it."""
    for queue in admin.list(TENANT_QUEUES).items:
        if queue["metadata"]["name"].startswith(f"{namespace}-"):
            admin.delete(TENANT_QUEUES, queue["metadata"]["name"])
    admin.delete(NAMESPACES, namespace)


OURS = ("coordinator", "worker")
"""Beginnings of the names of torchq's own processes; the others are the cluster's, Redis and the benchmark's."""


def costs(bench: Bench, before: Mapping[str, float]) -> dict[str, dict[str, float]]:
    """CPU seconds since `before` (`cpu`) and the most memory ever held, by process."""
    found = {name: used for name, pid in bench.pids().items() if (used := _usage(pid))}
    return {
        "cpu_s": {name: round(used["cpu_s"] - before.get(name, 0.0), 1) for name, used in found.items()},
        "peak_rss_mb_by_process": {name: used["max_rss_mib"] for name, used in found.items()},
    }


def cpu(bench: Bench) -> dict[str, float]:
    """CPU seconds so far, by process."""
    return {name: used["cpu_s"] for name, pid in bench.pids().items() if (used := _usage(pid))}


def _usage(pid: int) -> dict[str, float]:
    """Nothing of a process that is gone."""
    try:
        return stack.usage(pid)
    except OSError:
        return {}
