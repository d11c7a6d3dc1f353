"""What it costs the API server that a client waits for many jobs, and how soon the waits end.

One rule: the API server itself counts the requests. Nothing else runs: the benchmark writes the ends of the jobs, as a
worker does.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from bench.benchmarks.client import program
from bench.benchmarks.client.program import RPC_AGENT, Program
from bench.errors import BenchError
from bench.report import Figures
from bench.support import api_counts, stack
from bench.support.processes import Bench
from coordinator.local import stack as local_stack
from crds.api_resources import TORCHJOBS
from kube import client as kube_client
from kube.client import KubernetesCluster
from kube.settings import ConnectionSettings
from torchq import Client, aio

NAMESPACE = "default"
_THREADS = 8
_QUIET_SECONDS = 5.0
"""The time in which the jobs do not change: a client that polls would show."""
_SECONDS = 300.0
_WATCHES = ("LIST torchjobs", "WATCH torchjobs")

Wait = Callable[[Program, Sequence[str]], int]
"""A function that waits for the jobs of handles; it returns how many have succeeded."""


def measure(bench: Bench, handles: int) -> Figures:
    """Return the requests of one call that waits for all handles, and of one call for each handle."""
    kubeconfig = stack.start_apiserver(bench)
    settings = ConnectionSettings(kubeconfig=kubeconfig, user_agent="bench", pool_connections=_THREADS)
    cluster = kube_client.connect(settings)
    local_stack.install(cluster)
    installed = program.install(bench.folder, kubeconfig)
    with installed.on_path():
        one = _Waiting(bench, cluster, _make(cluster, "one", handles)).measure(_one_call, installed)
        each = _Waiting(bench, cluster, _make(cluster, "each", handles)).measure(_call_of_each, installed)
    return {f"wait_{name}": value for name, value in one.items()} | {
        f"wait_each_{name}": value for name, value in each.items()
    }


def figures(requests: Counter[str], late: float) -> Figures:
    """Return the watches, the pages of lists and all other requests of a client, and how late the wait ended."""
    watching = sum(requests[what] for what in _WATCHES)
    return {
        "watches": requests["WATCH torchjobs"],
        "list_pages": requests["LIST torchjobs"],
        "other_requests": requests.total() - watching,
        "late_ms": round(late * 1000),
    }


class _Waiting:
    """One wait for some jobs."""

    def __init__(self, bench: Bench, cluster: KubernetesCluster, handles: Sequence[str]) -> None:
        self._bench = bench
        self._cluster = cluster
        self._handles = handles

    def measure(self, wait: Wait, installed: Program) -> Figures:
        """Wait, end the jobs, and return the figures. Raises what the wait raises."""
        before = self._requests()

        def timed() -> tuple[int, float]:
            return wait(installed, self._handles), time.monotonic()

        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(timed)
            self._bench.wait(
                lambda: waiting.done() or (self._requests() - before)["WATCH torchjobs"], "a watch of the client"
            )
            time.sleep(_QUIET_SECONDS)
            _end(self._cluster, self._handles)
            last = time.monotonic()
            succeeded, ended = waiting.result()
        if succeeded != len(self._handles):
            raise BenchError(f"{succeeded} of {len(self._handles)} waits ended with Succeeded")
        return figures(self._requests() - before, ended - last)

    def _requests(self) -> Counter[str]:
        return api_counts.of_client(self._cluster.metrics(), RPC_AGENT)


def _one_call(installed: Program, handles: Sequence[str]) -> int:
    with Client(kubeconfig=installed.kubeconfig) as client:
        endings = client.wait(handles, timeout=_SECONDS)
    return sum(ending.outcome == "Succeeded" for ending in endings)


def _call_of_each(installed: Program, handles: Sequence[str]) -> int:
    async def wait() -> int:
        client = aio.Client(kubeconfig=installed.kubeconfig)
        try:
            jobs = [aio.Job(handle, client) for handle in handles]
            endings = await asyncio.gather(*(job.wait(timeout=_SECONDS) for job in jobs))
        finally:
            await client.close()
        return sum(ending.outcome == "Succeeded" for ending in endings)

    return asyncio.run(wait())


def _make(cluster: KubernetesCluster, prefix: str, count: int) -> list[str]:
    """Create jobs, and return their handles."""

    def make(number: int) -> str:
        container = {"name": "torch", "image": "none", "command": ["true"]}
        body = {
            "apiVersion": TORCHJOBS.api_version,
            "kind": TORCHJOBS.kind,
            "metadata": {"name": f"{prefix}-{number}"},
            "spec": {"torchTaskSpecs": {"Worker": {"template": {"spec": {"containers": [container]}}}}},
        }
        metadata = cluster.create(TORCHJOBS, body, NAMESPACE)["metadata"]
        return f"{NAMESPACE}/{metadata['name']}/{metadata['uid']}"

    with ThreadPoolExecutor(_THREADS) as pool:
        return list(pool.map(make, range(count)))


def _end(cluster: KubernetesCluster, handles: Sequence[str]) -> None:
    """Write that the jobs have succeeded."""

    def end(handle: str) -> None:
        name = handle.split("/")[1]
        cluster.patch(TORCHJOBS, name, {"status": {"phase": "Succeeded"}}, NAMESPACE, subresource="status")

    with ThreadPoolExecutor(_THREADS) as pool:
        list(pool.map(end, handles))
