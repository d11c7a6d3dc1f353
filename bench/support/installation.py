"""Starts an API server, Redis, a coordinator and workers, as `torchq coordinator` and `torchq worker` run on a cluster.

One rule: the processes and settings are those of production, whichever API server is used: the embedded one (by
default), a private kube-apiserver on etcd, or one that a kubeconfig names.
"""

import contextlib
import os
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from bench.errors import BenchError
from bench.report import Figures
from bench.support import api_counts, real_server, redis_server, stack
from bench.support.processes import Bench, room
from coordinator.local import stack as local_stack
from coordinator.rbac.permissions import COORDINATOR, WORKER
from crds.api_resources import NAMESPACES, TENANT_QUEUES
from kube import client, errors
from kube.client import KubernetesCluster
from kube.settings import ConnectionSettings
from queues.redis import connection
from queues.storage.redis_store import RedisStore

AGENT = "bench"
OURS = ("coordinator", "worker")
"""The beginnings of the names of torchq's own processes. The others belong to the cluster, Redis or the benchmark."""
_POLL_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class Server:
    """An API server with torchq's definitions."""

    name: str
    """The name that the results show."""
    admin: KubernetesCluster
    """The client of the admin, which may do everything."""
    kubeconfig: str
    """The kubeconfig of the admin."""
    accounts: tuple[str, str]
    """The kubeconfigs of coordinator and worker."""


@dataclass(frozen=True, slots=True)
class Installation:
    """A running torchq on an API server."""

    bench: Bench
    server: Server
    redis: connection.Connection
    namespace: str
    """The namespace for the jobs; its name is unique, and the names of the queues begin with it."""

    @property
    def admin(self) -> KubernetesCluster:
        """The client of the admin."""
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

    def play_pods(self, threads: int) -> None:
        """Start a process that lets pods run and end."""
        self.bench.start_python("pod-player", "bench.support.pod_player", self.server.kubeconfig, str(threads), stage=2)

    def wait(self, is_over: Callable[[], bool], seconds: float, state: Callable[[], str]) -> None:
        """Return once a condition is true. Processes that die are started again. Raises BenchError, with the end of the
        logs, if the time is over before the condition holds (with the state), or if the condition raises it."""
        deadline, pause = time.monotonic() + seconds, threading.Event()
        try:
            while not is_over():
                if time.monotonic() > deadline:
                    raise BenchError(f"not over after {seconds:.0f} s: {state()}")
                self.bench.keep_alive()
                pause.wait(_POLL_SECONDS)
        except BenchError as error:
            raise BenchError(f"{error}{self.bench.logs()}") from error

    def cpu(self) -> dict[str, float]:
        """Return the CPU seconds so far, by process."""
        return {name: used["cpu_s"] for name, used in self._usage().items()}

    def costs(self, before: Mapping[str, float]) -> Figures:
        """Return the CPU seconds since `before` (the result of `cpu`) and the peak memory, by process."""
        usage = self._usage()
        return {
            "cpu_s": {name: round(used["cpu_s"] - before.get(name, 0.0), 1) for name, used in usage.items()},
            "peak_rss_mb_by_process": {name: used["max_rss_mib"] for name, used in usage.items()},
        }

    def _usage(self) -> dict[str, dict[str, float]]:
        """Return the CPU time and memory of each process that has not ended."""
        usage = {}
        for name, pid in self.bench.pids().items():
            with contextlib.suppress(OSError):
                usage[name] = stack.usage(pid)
        return usage


@contextlib.contextmanager
def running(
    *,
    kubeconfig: str = "",
    real: bool = False,
    workers: int = 2,
    coordinator: bool = True,
    settings: Mapping[str, str] | None = None,
) -> Iterator[Installation]:
    """Start everything, and enter the block when the coordinator leads.

    `kubeconfig` names an existing API server, on which the objects that were created are deleted afterwards. Otherwise
    the benchmark starts its own API server: the embedded API server, or (`real`) kube-apiserver, whose folder
    KUBEBUILDER_ASSETS names. Without a coordinator, the caller dispatches the work. `settings` are environment
    variables of both processes.
    """
    with room(stack.STOP_SECONDS) as bench:
        server = _existing(kubeconfig) if kubeconfig else _real(bench) if real else _embedded(bench)
        namespace = f"bench-{os.getpid()}"
        server.admin.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
        url = redis_server.start(bench)
        torchq = Installation(bench, server, connection.connect(url, client_name="torchq-bench"), namespace)
        names = ["coordinator"] * coordinator + [f"worker-{number}" for number in range(workers)]
        try:
            for name in names:
                account = server.accounts[name != "coordinator"]
                environment = {"TORCHQ_KUBECONFIG": account, **(settings or {}), "TORCHQ_REDIS_URL": url}
                command = ["coordinator"] if name == "coordinator" else ["worker", "--single"]
                bench.start_python(name, "coordinator.cli.main", *command, stage=3, environment=environment)
            # On a server that has had a coordinator before, a new coordinator first waits for the workers of the
            # earlier coordinator.
            if coordinator:
                bench.wait(lambda: torchq.store().epoch(), "the coordinator", real_server.START_SECONDS)
            yield torchq
        finally:
            if kubeconfig:
                _clean(server.admin, namespace)


def _existing(kubeconfig: str) -> Server:
    admin = client.connect(ConnectionSettings(kubeconfig=kubeconfig, user_agent=AGENT))
    local_stack.install(admin)
    return Server(admin.server, admin, kubeconfig, (kubeconfig, kubeconfig))


def _embedded(bench: Bench) -> Server:
    options = ["--data", str(bench.folder / "data"), "--port", str(bench.port())]  # the same port after a restart
    bench.start_python("apiserver", "embedded.apiserver.api_server", *options)
    bench.wait_said(["apiserver"], "ready at")
    kubeconfig = bench.log("apiserver").read_text().rpartition("kubeconfig ")[2].splitlines()[0]
    server = _existing(kubeconfig)
    return Server("embedded", server.admin, kubeconfig, server.accounts)


def _real(bench: Bench) -> Server:
    assets = Path(os.environ.get("KUBEBUILDER_ASSETS") or ".")
    server = real_server.start(bench, assets)
    version = subprocess.run([assets / "kube-apiserver", "--version"], capture_output=True, text=True, check=True)
    accounts = (str(server.kubeconfig(COORDINATOR)), str(server.kubeconfig(WORKER)))
    name = f"kube-apiserver, {version.stdout.strip()}, on etcd"
    return Server(name, server.admin, str(server.folder / "admin.kubeconfig"), accounts)


def _clean(admin: KubernetesCluster, namespace: str) -> None:
    """Delete the queues and the namespace; with the namespace, the server deletes the jobs."""
    for queue in admin.list(TENANT_QUEUES).items:
        if queue["metadata"]["name"].startswith(f"{namespace}-"):
            admin.delete(TENANT_QUEUES, queue["metadata"]["name"])
    admin.delete(NAMESPACES, namespace)
