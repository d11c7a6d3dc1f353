"""One cluster with coordinators and workers of several versions, and an observer of its pods.

One rule: a version is a folder with a source tree. The processes of a version import torchq from its folder only.
"""

import contextlib
import re
import shutil
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from coordinator.local import stack
from coordinator.rbac.permissions import LEASE
from crds import labels
from crds.api_resources import LEASES, NODES, PODS, TORCHJOBS
from embedded.layout import Layout
from embedded.redis import server_program
from kube import client, errors
from kube.client import KubernetesCluster
from kube.settings import ConnectionSettings
from tests.chaos.parts import Part, Parts
from tests.support.acceptance.stack import FINAL, clean_environment, until
from tests.support.acceptance.warm import ROOT
from tests.support.waiting import patient

PACKAGES = ("torchq", "crds", "kube", "embedded", "gang", "queues", "reconcilers", "coordinator")
LOOK_SECONDS = 0.1
_RUN = """
import runpy, sys
sys.path.insert(0, sys.argv.pop(1))
runpy.run_module("coordinator.cli.main", run_name="__main__", alter_sys=True)
"""


def copy_with_layout(folder: Path, layout: int) -> Path:
    """Copy the source tree into a folder, with another number of its layout of keys. Return the folder."""
    for name in PACKAGES:
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    _replace(folder / "queues/redis_keys.py", r'LAYOUT_NUMBER = b"\d+"', f'LAYOUT_NUMBER = b"{layout}"')
    _replace(folder / "queues/lua/lib/store.lua", r"local LAYOUT = '\d+'", f"local LAYOUT = '{layout}'")
    return folder


def _replace(file: Path, pattern: str, text: str) -> None:
    changed, count = re.subn(pattern, text, file.read_text())
    assert count == 1, f"{file} has no layout number"
    file.write_text(changed)


@dataclass
class Observer:
    """The observations of the pods of a cluster from outside."""

    api: KubernetesCluster
    most: int = 0
    """The most pods that occupied the cluster at one moment."""
    pods: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    """By job, the uids of all its pods."""
    ended: dict[str, float] = field(default_factory=dict)
    """By job, the time at which its end was seen, in seconds of the monotonic clock."""
    stopping: threading.Event = field(default_factory=threading.Event)

    def look(self) -> None:
        """Read jobs and pods once."""
        occupying = 0
        for item in self.api.list(PODS).items:
            self.pods[item["metadata"]["labels"][labels.JOB_NAME]].add(item["metadata"]["uid"])
            occupying += (item.get("status") or {}).get("phase") not in FINAL
        self.most = max(self.most, occupying)
        for item in self.api.list(TORCHJOBS).items:
            if (item.get("status") or {}).get("phase") in FINAL:
                self.ended.setdefault(item["metadata"]["name"], time.monotonic())

    def run(self) -> None:
        """Look again and again until the observer is stopped."""
        while not self.stopping.wait(LOOK_SECONDS):
            with contextlib.suppress(errors.ClusterError):
                self.look()


class Site:
    """An API server, Redis and a node of this version, and processes of any version."""

    def __init__(self, folder: Path, settings: dict[str, str]) -> None:
        self._layout = Layout(folder / "data")
        self._layout.root.mkdir(parents=True, mode=0o700)
        self._layout.logs("any").parent.mkdir()
        self._settings = settings
        self._redis = server_program.prepare(self._layout)
        self.parts = Parts()
        self.observer: Observer | None = None

    def start(self) -> None:
        """Start the cluster and the observer; no coordinator and no worker."""
        root = str(self._layout.root)
        self._add("apiserver", [sys.executable, "-m", "embedded.apiserver.api_server", "--data", root, "--port", "0"])
        self._add("redis", self._redis.command)
        until(self._layout.kubeconfig.exists)
        stack.install(self.api())
        kubeconfig = ["--data", root, "--kubeconfig", str(self._layout.kubeconfig), "--stop-pods"]
        size = ["--cpus", "16", "--memory", "64Gi", "--gpus", "0"]
        self._add("node", [sys.executable, "-m", "embedded.node.node", *kubeconfig, *size])
        until(lambda: server_program.answers(self._redis.url) and self.api().list(NODES).items)
        self.observer = Observer(self.api())
        threading.Thread(target=self.observer.run, name="observer", daemon=True).start()

    def api(self) -> KubernetesCluster:
        """Return a new client of the API server."""
        return client.connect(ConnectionSettings(kubeconfig=str(self._layout.kubeconfig)))

    @property
    def redis_url(self) -> str:
        """The URL of Redis."""
        return self._redis.url

    def run(self, name: str, tree: Path, *arguments: str) -> None:
        """Start a coordinator or a worker of a source tree under this name."""
        environment = clean_environment(
            TORCHQ_KUBECONFIG=str(self._layout.kubeconfig),
            TORCHQ_REDIS_URL=self.redis_url,
            TORCHQ_MASTER_ADDRESS="loopback",
            **self._settings,
        )
        self._add(name, [sys.executable, "-P", "-c", _RUN, str(tree), *arguments], environment)

    def stop(self, name: str) -> float:
        """Stop a process with SIGTERM and wait for its end. Return the number of seconds until its end."""
        began, part = time.monotonic(), self.parts.all.pop(name)
        assert part.process is not None
        part.process.terminate()
        assert part.process.wait(patient()) == 0, self.log(name)
        return time.monotonic() - began

    def leads(self, name: str) -> bool:
        """Return whether a coordinator of this name leads."""
        try:
            holder = (self.api().get(LEASES, LEASE, "kube-system").get("spec") or {}).get("holderIdentity") or ""
        except errors.NotFound:
            return False
        return f"-{self.parts[name].pid}-" in holder

    def has_ended(self, count: int) -> Callable[[], bool]:
        """Return the condition that `count` jobs have ended."""
        assert self.observer is not None
        seen = self.observer
        return lambda: len(seen.ended) >= count

    def log(self, name: str) -> str:
        """Return the log of a process."""
        return self._layout.logs(name).read_text()

    def close(self) -> None:
        """Stop all processes and the observer."""
        if self.observer is not None:
            self.observer.stopping.set()
        self.parts.stop()

    def _add(self, name: str, command: list[str], environment: dict[str, str] | None = None) -> None:
        self.parts.add(Part(name, command, environment or clean_environment(), self._layout.logs(name)))
