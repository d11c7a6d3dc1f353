"""An embedded cluster for the tests of its node: an API server, a client, and helpers that create and watch pods."""

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
from embedded.node.status.pod_lifecycle import Backoff
from kube import errors
from kube.client import KubernetesCluster
from tests.support.waiting import until

GIB = 2**30
SETTINGS = NodeSettings(
    Machine(cpu=8000, memory=8 * GIB, gpus=("0", "1", "2", "3"), storage=GIB), backoff=Backoff(0.2, 1.0), stop_pods=True
)
_NUMBERS = itertools.count(1)
StartNode = Callable[..., "subprocess.Popen[bytes]"]
"""A function that starts a node process with the given options."""


@dataclass(frozen=True)
class Stage:
    """A cluster under test, with helpers for its pods."""

    cluster: KubernetesCluster
    layout: Layout
    kubeconfig: Path

    def run(self, *command: str, **options: Any) -> str:
        """Create a pod with one container and return its name."""
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
        """Create a pod and return its name."""
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
        """Return the pod."""
        return self.cluster.get(PODS, name, "default")

    def status(self, name: str) -> dict[str, Any]:
        """Return the status of the pod."""
        found: dict[str, Any] = self.get(name).get("status", {})
        return found

    def wait(self, name: str, true: Callable[[dict[str, Any]], Any]) -> dict[str, Any]:
        """Wait until a condition holds for the status of the pod, and return the status."""
        return until(lambda: self.status(name), true)

    def phase(self, name: str, *phases: str) -> dict[str, Any]:
        """Wait until the pod is in one of the phases, and return its status."""
        return self.wait(name, lambda status: status.get("phase") in phases)

    def wait_gone(self, name: str) -> None:
        """Wait until the pod no longer exists."""
        until(lambda: self._exists(name), lambda exists: not exists)

    def delete(self, name: str, grace: int | None = None) -> None:
        """Delete the pod, without waiting for its end."""
        self.cluster.delete(PODS, name, "default", grace_period_seconds=grace)

    def log(self, name: str, container: str = "") -> str:
        """Return the log of a container of the pod."""
        return b"".join(self.cluster.logs(name, "default", container)).decode()

    def folder(self, name: str) -> Path:
        """Return the folder of the pod on the node."""
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
    """Return the terminated state of a container."""
    found: dict[str, Any] = status[kind][index]["state"]["terminated"]
    return found


def first(status: dict[str, Any]) -> dict[str, Any]:
    """Return the status of the first container, or an empty dictionary if the status has none."""
    return next(iter(status.get("containerStatuses", [])), {})
