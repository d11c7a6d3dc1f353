"""Manifests of TorchJobs and TenantQueues; a test states only the fields that matter to it."""

from typing import Any

GPU = "nvidia.com/gpu"


def template(**resources: Any) -> dict[str, Any]:
    """Return a pod template of one container with these limits."""
    container: dict[str, Any] = {"name": "torch", "image": "train"}
    return {"spec": {"containers": [container | ({"resources": {"limits": resources}} if resources else {})]}}


def task(**fields: Any) -> dict[str, Any]:
    """Return a task."""
    return {"template": template(), **fields}


def job(name: str = "train", *, status: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    """Return a TorchJob of a Master and two Workers; `spec` adds or replaces fields."""
    tasks = {"Master": task(), "Worker": task(numTasks=2)}
    return {
        "apiVersion": "train.distributed.io/v1alpha1",
        "kind": "TorchJob",
        "metadata": {"name": name, "namespace": "team", "uid": "u1", "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"torchTaskSpecs": tasks, **spec},
    } | ({"status": status} if status is not None else {})


def queue(name: str = "team", **spec: Any) -> dict[str, Any]:
    """Return a TenantQueue."""
    return {
        "apiVersion": "train.distributed.io/v1alpha1",
        "kind": "TenantQueue",
        "metadata": {"name": name},
        "spec": spec,
    }
