"""Manifests for the tests of kubectl."""

from typing import Any


def config_map(name: str = "c", **data: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data or {"a": "1"}}


def pod(name: str = "p", *command: str, **spec: Any) -> dict[str, Any]:
    container = {"name": "main", "image": "none", "command": list(command or ["true"])}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": name}},
        "spec": {"restartPolicy": "Never", "containers": [container], **spec},
    }


def job(name: str = "j", workers: int = 2) -> dict[str, Any]:
    template = {"spec": {"containers": [{"name": "torch", "image": "none", "command": ["true"]}]}}
    tasks = {"Master": {"template": template}, "Worker": {"numTasks": workers, "template": template}}
    return {
        "apiVersion": "train.distributed.io/v1alpha1",
        "kind": "TorchJob",
        "metadata": {"name": name},
        "spec": {"torchTaskSpecs": tasks},
    }


def queue(name: str, weight: int = 1) -> dict[str, Any]:
    return {
        "apiVersion": "train.distributed.io/v1alpha1",
        "kind": "TenantQueue",
        "metadata": {"name": name},
        "spec": {"weight": weight},
    }
