"""Starts an API server, Redis, a coordinator and workers, as `torchq coordinator` and `torchq worker` run on a cluster.

One rule: the processes and settings are those of production, whichever API server is used: the embedded one (by
default), a private kube-apiserver on etcd, or one that a kubeconfig names.
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
COORDINATOR_STAGE = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class InstallationOptions:
    """The parts of the installation."""

    kubeconfig: str = ""
    """Kubeconfig of an existing API server; if empty, the benchmark starts its own."""
    real: bool = False
    """Whether the benchmark's own API server is kube-apiserver instead of the embedded one.

    The environment variable KUBEBUILDER_ASSETS names the folder with its program.
    """
    workers: int = 2
    coordinator: bool = True
    """Whether to start a coordinator; without one, the caller dispatches the work."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """Environment variables for coordinator and workers."""


@dataclass(frozen=True, slots=True)
class Server:
    """An API server with torchq's definitions."""

    name: str
    """The name that the results show."""
    admin: KubernetesCluster
    kubeconfig: str
    """The kubeconfig of the admin."""
    accounts: tuple[str, str]
    """The kubeconfigs of coordinator and worker."""


@dataclass(frozen=True, slots=True)
class Installation:
    """A running torchq on an API server."""

    server: Server
    redis: connection.Connection
    namespace: str
    """The namespace for the jobs; its name is unique, and the names of the queues begin with it."""

    @property
    def admin(self) -> KubernetesCluster:
        """The client of the admin, which may do everything."""
        return self.server.admin

    def requests(self) -> Counter[str]:
        """Return the requests that the server has counted so far; empty if it does not publish the counts."""
        try:
            return api_counts.by_code(self.admin.metrics())
        except errors.ClusterError:
            return Counter()

    def store(self) -> RedisStore:
        """Return a store of the benchmark's own, to read the queues."""
        return RedisStore(self.redis)


@contextlib.contextmanager
def running(bench: Bench, options: InstallationOptions) -> Iterator[Installation]:
    """Start everything, and enter the block when the coordinator leads.

    On an existing server, the objects that were created are deleted afterwards.
    """
    server = _server(bench, options)
    namespace = f"bench-{os.getpid()}"
    server.admin.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
    url = redis_server.start(bench)
    try:
        _start_processes(bench, server, {**options.settings, "TORCHQ_REDIS_URL": url}, options)
        torchq = Installation(server, connection.connect(url, client_name="torchq-bench"), namespace)
        # On a server that has had a coordinator before, a new coordinator first waits for that one's workers.
        if options.coordinator:
            bench.wait(lambda: torchq.store().epoch(), "the coordinator", real_server.START_SECONDS)
        yield torchq
    finally:
        if options.kubeconfig:
            _clean(server.admin, namespace)


def _server(bench: Bench, options: InstallationOptions) -> Server:
    if options.kubeconfig:
        admin = client.connect(ConnectionSettings(kubeconfig=options.kubeconfig, user_agent=AGENT))
        local_stack.install(admin)
        return Server(admin.server, admin, options.kubeconfig, (options.kubeconfig, options.kubeconfig))
    return _real(bench) if options.real else _start_embedded(bench)


def _real(bench: Bench) -> Server:
    assets = Path(os.environ.get("KUBEBUILDER_ASSETS") or ".")
    server = real_server.start(bench, assets)
    version = subprocess.run([assets / "kube-apiserver", "--version"], capture_output=True, text=True, check=True)
    accounts = (str(server.kubeconfig(COORDINATOR)), str(server.kubeconfig(WORKER)))
    name = f"kube-apiserver, {version.stdout.strip()}, on etcd"
    return Server(name, server.admin, str(server.folder / "admin.kubeconfig"), accounts)


def _start_embedded(bench: Bench) -> Server:
    kubeconfig = stack.start_apiserver(bench, "--port", str(bench.port()))  # a restarted server has the same port
    admin = client.connect(ConnectionSettings(kubeconfig=kubeconfig, user_agent=AGENT))
    local_stack.install(admin)
    return Server("embedded", admin, kubeconfig, (kubeconfig, kubeconfig))


def _start_processes(bench: Bench, server: Server, settings: Mapping[str, str], options: InstallationOptions) -> None:
    coordinator_environment, worker_environment = (
        {"TORCHQ_KUBECONFIG": kubeconfig, **settings} for kubeconfig in server.accounts
    )
    if options.coordinator:
        bench.start_python(
            "coordinator",
            "coordinator.cli.main",
            "coordinator",
            stage=COORDINATOR_STAGE,
            environment=coordinator_environment,
        )
    for number in range(options.workers):
        arguments = ("worker", "--single")
        bench.start_python(
            f"worker-{number}",
            "coordinator.cli.main",
            *arguments,
            stage=COORDINATOR_STAGE,
            environment=worker_environment,
        )


def _clean(admin: KubernetesCluster, namespace: str) -> None:
    """Delete the queues and the namespace; with the namespace, the server deletes the jobs."""
    for queue in admin.list(TENANT_QUEUES).items:
        if queue["metadata"]["name"].startswith(f"{namespace}-"):
            admin.delete(TENANT_QUEUES, queue["metadata"]["name"])
    admin.delete(NAMESPACES, namespace)


OURS = ("coordinator", "worker")
"""The beginnings of the names of torchq's own processes. The others belong to the cluster, Redis or the benchmark."""


def costs(bench: Bench, before: Mapping[str, float]) -> dict[str, dict[str, float]]:
    """Return the CPU seconds since `before` (the result of `cpu`) and the peak memory, by process."""
    usage = {name: used for name, pid in bench.pids().items() if (used := _usage(pid))}
    return {
        "cpu_s": {name: round(used["cpu_s"] - before.get(name, 0.0), 1) for name, used in usage.items()},
        "peak_rss_mb_by_process": {name: used["max_rss_mib"] for name, used in usage.items()},
    }


def cpu(bench: Bench) -> dict[str, float]:
    """Return the CPU seconds so far, by process."""
    return {name: used["cpu_s"] for name, pid in bench.pids().items() if (used := _usage(pid))}


def _usage(pid: int) -> dict[str, float]:
    """Return the CPU time and memory of a process; nothing if the process has ended."""
    try:
        return stack.usage(pid)
    except OSError:
        return {}
