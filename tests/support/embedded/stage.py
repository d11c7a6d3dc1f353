"""A whole embedded cluster for the tests of its node: API server, client, and a way to make pods and wait for them."""

import itertools
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from crds.api_resources import PODS
from embedded.layout import Layout
from embedded.node.node import NodeSettings
from embedded.node.resources.machine import Machine
from embedded.node.status.lifecycle import Backoff
from kube import errors
from kube.client import KubernetesCluster
from tests.support.waiting import until

GIB = 2**30
SETTINGS = NodeSettings(
    Machine(cpu=8000, memory=8 * GIB, gpus=("0", "1", "2", "3"), storage=GIB), backoff=Backoff(0.2, 1.0), stop_pods=True
)
_NUMBERS = itertools.count(1)
StartNode = Callable[..., "subprocess.Popen[bytes]"]
"""Starts a node as a process, with further options."""


@dataclass(frozen=True)
class Stage:
    """One cluster."""

    cluster: KubernetesCluster
    layout: Layout
    kubeconfig: Path

    def run(self, *command: str, **options: Any) -> str:
        """Make a pod of one container; its name."""
        return self.make([{"command": list(command), **options.pop("container", {})}], **options)

    def make(
        self,
        containers: list[dict[str, Any]],
        *,
        policy: str = "Never",
        init: list[dict[str, Any]] | None = None,
        metadata: dict[str, Any] | None = None,
        **spec: Any,
    ) -> str:
        """Make a pod; its name."""
        name = f"pod-{next(_NUMBERS)}"
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, **(metadata or {})},
            "spec": {
                "restartPolicy": policy,
                "containers": _named("c", containers),
                "initContainers": _named("i", init or []),
                **spec,
            },
        }
        self.cluster.create(PODS, body, "default")
        return name

    def get(self, name: str) -> dict[str, Any]:
        """The pod."""
        return self.cluster.get(PODS, name, "default")

    def status(self, name: str) -> dict[str, Any]:
        """Its status."""
        found: dict[str, Any] = self.get(name).get("status", {})
        return found

    def wait(self, name: str, true: Callable[[dict[str, Any]], Any]) -> dict[str, Any]:
        """Wait until something is true of a pod's status."""
        return until(lambda: self.status(name), true)

    def phase(self, name: str, *phases: str) -> dict[str, Any]:
        """Wait for a phase."""
        return self.wait(name, lambda status: status.get("phase") in phases)

    def gone(self, name: str) -> None:
        """Wait until the pod is no more."""
        until(lambda: self._exists(name), lambda exists: not exists)

    def delete(self, name: str, grace: int | None = None) -> None:
        """Ask for the pod to go."""
        self.cluster.delete(PODS, name, "default", grace_period_seconds=grace)

    def log(self, name: str, container: str = "") -> str:
        """Its log."""
        return b"".join(self.cluster.logs(name, "default", container)).decode()

    def folder(self, name: str) -> Path:
        """Its folder."""
        return self.layout.pod(self.get(name)["metadata"]["uid"])

    def _exists(self, name: str) -> bool:
        try:
            self.get(name)
        except errors.NotFound:
            return False
        return True


def _named(letter: str, containers: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{"name": f"{letter}{index}", "image": "any", **each} for index, each in enumerate(containers)]


def terminated(status: dict[str, Any], index: int = 0, kind: str = "containerStatuses") -> dict[str, Any]:
    """How a container ended."""
    found: dict[str, Any] = status[kind][index]["state"]["terminated"]
    return found


def first(status: dict[str, Any]) -> dict[str, Any]:
    """The status of the first container, as far as it has one."""
    return next(iter(status.get("containerStatuses", [])), {})
