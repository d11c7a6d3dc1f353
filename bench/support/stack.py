"""Starts a private embedded stack as `torchq local up` does, and measures each of its processes.

One rule: all figures come from outside: /proc for CPU and memory, and the API server's and Redis's counts for requests.
"""

import contextlib
import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.support import redis_server
from bench.support.processes import Bench, room
from coordinator.local import stack_state
from kube import client
from kube.client import KubernetesCluster
from kube.settings import ConnectionSettings
from queues.redis import connection

START_SECONDS = 180.0
STOP_SECONDS = 60.0
_TICKS = os.sysconf("SC_CLK_TCK")
_MIB = 1024
_TROUBLE = re.compile(r"\b(WARNING|ERROR|CRITICAL)\b (.*)|^(Traceback .*)")
_MOVING = re.compile(r"[0-9a-f]{8}-[0-9a-f-]{27}|\d+")


@dataclass(frozen=True, slots=True)
class Stack:
    """A running stack."""

    bench: Bench
    data: Path
    cluster: KubernetesCluster
    redis: connection.Connection
    kubeconfig: str

    def pids(self) -> dict[str, int]:
        """Return the pids of the stack's processes by name, including Redis."""
        with connection.translate_errors(self.redis):
            server: Any = self.redis.info("server")
        return {**stack_state.members(self.data), "redis": int(server["process_id"])}

    def troubles(self) -> dict[str, int]:
        """Return how often each warning and error is in the logs."""
        return troubles(self.data / "logs")


@contextlib.contextmanager
def running(cpus: int = 64, settings: Mapping[str, str] | None = None) -> Iterator[Stack]:
    """Run a stack with empty storage; `settings` are environment variables for coordinator and workers."""
    with room(STOP_SECONDS) as bench:
        url, data = redis_server.start(bench), bench.folder / "data"
        options = ["--cpus", str(cpus), "--memory", "256Gi", "--gpus", "0", "--workers", "2"]
        command = ["local", "up", "--foreground", "--no-current", "--data", str(data), "--redis", url, *options]
        bench.start_python("stack", "coordinator.cli.main", *command, stage=1, environment=settings)
        bench.wait(lambda: stack_state.members(data), "the stack", START_SECONDS)
        kubeconfig = str(data / "kubeconfig")
        cluster = client.connect(ConnectionSettings(kubeconfig=kubeconfig, user_agent="bench"))
        yield Stack(bench, data, cluster, connection.connect(url, client_name="torchq-bench"), kubeconfig)


def troubles(folder: Path) -> dict[str, int]:
    """Return how often each warning and error is in the logs of a folder; their numbers and uids are replaced by #."""
    return dict(Counter(_troubles(folder)).most_common(20))


def _troubles(folder: Path) -> Iterator[str]:
    for log in sorted(folder.glob("*.log")):
        for line in log.read_text(errors="replace").splitlines():
            if match := _TROUBLE.search(line):
                yield f"{log.stem}: {_MOVING.sub('#', match[2] or match[3])}"


def usage(pid: int) -> dict[str, float]:
    """Return the CPU seconds and the peak memory of a process that runs. Raises OSError if the process has ended."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    peak = next((line.split()[1] for line in lines if line.startswith("VmHWM:")), "0")
    return {"cpu_s": round(_ticks(pid)[0] / _TICKS, 2), "max_rss_mib": round(int(peak) / _MIB, 1)}


def cpu_seconds(pid: int) -> float:
    """Return the CPU time of a process and of its children that have ended; 0 if the process has ended."""
    return sum(_ticks(pid)) / _TICKS


def _ticks(pid: int) -> tuple[int, int]:
    """Return the CPU ticks of a process and of its ended children; 0 if the process has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return 0, 0
    return sum(map(int, fields[11:13])), sum(map(int, fields[13:15]))
