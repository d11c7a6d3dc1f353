"""Starts a private embedded stack as `torchq local up` does, and measures each of its processes.

One rule: all figures come from outside: /proc for CPU and memory, and the API server's and Redis's counts for requests.
"""

import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.support import redis_server
from bench.support.processes import Bench
from coordinator.local import stack_state
from crds.api_resources import TENANT_QUEUES
from kube import client
from kube.client import KubernetesCluster
from kube.settings import ConnectionSettings
from queues.redis import connection

START_SECONDS = 180.0
STOP_SECONDS = 60.0
_TICKS = os.sysconf("SC_CLK_TCK")
_MIB = 1024
_REQUEST = re.compile(
    r'apiserver_request_total\{client="([^"]*)",verb="(\w+)",resource="([^"]*)",subresource="(\w*)"\} (\d+)'
)
_REFUSED = re.compile(r'apiserver_refused_total\{code="(\d+)",reason="(\w*)"\} (\d+)')
_GAUGE = re.compile(r'^apiserver_(\w+)(?:\{resource="([^"]*)"\})? (\d+)$', re.MULTILINE)
_TROUBLE = re.compile(r"\b(WARNING|ERROR|CRITICAL)\b (.*)|^(Traceback .*)")
_MOVING = re.compile(r"[0-9a-f]{8}-[0-9a-f-]{27}|\d+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """The size of a stack."""

    cpus: int = 64
    workers: int = 2


@dataclass(slots=True)
class Stack:
    """A running stack."""

    data: Path
    cluster: KubernetesCluster
    redis: connection.Connection
    kubeconfig: str
    settings: Mapping[str, str] = field(default_factory=dict)

    def create_queues(self, count: int) -> None:
        """Create the tenant queues team-0, team-1, ... without a quota."""
        body = {"apiVersion": TENANT_QUEUES.api_version, "kind": TENANT_QUEUES.kind}
        for number in range(count):
            self.cluster.create(TENANT_QUEUES, {**body, "metadata": {"name": f"team-{number}"}})

    def pids(self) -> dict[str, int]:
        """Return the pids of the stack's processes by name, including Redis."""
        pids = stack_state.members(self.data)
        with connection.translate_errors(self.redis):
            server: Any = self.redis.info("server")
        return {**pids, "redis": int(server["process_id"])}

    def usage(self) -> dict[str, dict[str, float]]:
        """Return CPU time so far, that of children, and peak memory, by process."""
        return {name: usage(pid) for name, pid in self.pids().items()}

    def requests(self) -> dict[str, Counter[str]]:
        """Return the counts of requests to the API server, as "VERB resource/subresource", by client."""
        requests: dict[str, Counter[str]] = {}
        for name, verb, resource, subresource, count in _REQUEST.findall(self.cluster.metrics()):
            what = f"{verb} {resource}" + (f"/{subresource}" if subresource else "")
            requests.setdefault(name, Counter())[what] += int(count)
        return requests

    def refused(self) -> dict[str, int]:
        """Return the counts of requests that the API server refused, by code and reason."""
        return {f"{code} {reason}": int(count) for code, reason, count in _REFUSED.findall(self.cluster.metrics())}

    def held(self) -> dict[str, int]:
        """Return what the API server has in memory: objects by resource, open watches, stored changes."""
        return {resource or name: int(count) for name, resource, count in _GAUGE.findall(self.cluster.metrics())}

    def commands(self) -> Counter[str]:
        """Return the counts of commands that Redis has run; the commands inside scripts do not count."""
        with connection.translate_errors(self.redis):
            statistics: dict[str, Any] = self.redis.info("commandstats")
        return Counter({name.removeprefix("cmdstat_"): int(command["calls"]) for name, command in statistics.items()})

    def troubles(self) -> dict[str, int]:
        """Return how often each warning and error is in the logs."""
        return troubles(self.data / "logs")


def start(bench: Bench, size: Size, settings: Mapping[str, str] | None = None) -> Stack:
    """Start a stack with empty storage; `settings` are environment variables for coordinator and workers."""
    url, data = redis_server.start(bench), bench.folder / "data"
    options = ["--cpus", str(size.cpus), "--memory", "256Gi", "--gpus", "0", "--workers", str(size.workers)]
    command = ["local", "up", "--foreground", "--no-current", "--data", str(data), "--redis", url, *options]
    bench.start_python("stack", "coordinator.cli.main", *command, stage=1, environment=settings)
    bench.wait(lambda: stack_state.members(data), "the stack", START_SECONDS)
    kubeconfig = str(data / "kubeconfig")
    cluster = client.connect(ConnectionSettings(kubeconfig=kubeconfig, user_agent="bench"))
    redis = connection.connect(url, client_name="torchq-bench")
    return Stack(data, cluster, redis, kubeconfig)


def start_apiserver(bench: Bench, *arguments: str) -> str:
    """Start only the embedded API server, with empty storage; return its kubeconfig once it answers."""
    data = bench.folder / "data"
    bench.start_python("apiserver", "embedded.apiserver.server", "--data", str(data), *arguments)
    bench.wait_said(["apiserver"], "ready at")
    return bench.log("apiserver").read_text().rpartition("kubeconfig ")[2].splitlines()[0]


def troubles(folder: Path) -> dict[str, int]:
    """Return how often each warning and error is in the logs of a folder; their numbers and uids are replaced by #."""
    return dict(Counter(_troubles(folder)).most_common(20))


def _troubles(folder: Path) -> Iterator[str]:
    for log in sorted(folder.glob("*.log")):
        for line in log.read_text(errors="replace").splitlines():
            if match := _TROUBLE.search(line):
                yield f"{log.stem}: {_MOVING.sub('#', match[2] or match[3])}"


def usage(pid: int) -> dict[str, float]:
    """Return the CPU seconds and the memory of a process that runs.

    Its children count, too; a running child counts together with its own ended children. The node's only child is the
    fork server, from which all containers come.
    """
    ticks, ended = _ticks(pid)
    living = sum(sum(_ticks(child)) for child in _children(pid))
    return {
        "cpu_s": round(ticks / _TICKS, 2),
        "children_cpu_s": round((ended + living) / _TICKS, 2),
        "rss_mib": _status(pid, "VmRSS"),
        "max_rss_mib": _status(pid, "VmHWM"),
    }


def _ticks(pid: int) -> tuple[int, int]:
    """Return the CPU ticks of a process and of its ended children; 0 if the process has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return 0, 0
    return sum(map(int, fields[11:13])), sum(map(int, fields[13:15]))


def _children(pid: int) -> list[int]:
    return [int(path.name) for path in Path("/proc").glob("[0-9]*") if _parent(path) == pid]


def _parent(path: Path) -> int:
    try:
        return int((path / "stat").read_bytes().rpartition(b")")[2].split()[1])
    except OSError:
        return 0


def _status(pid: int, name: str) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    value = next((line.split()[1] for line in lines if line.startswith(name + ":")), "0")
    return round(int(value) / _MIB, 1)
