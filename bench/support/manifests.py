"""The queues and jobs that benchmarks create.

One rule: pure. No scheduler binds the pods of a template from here, so that no node runs them.
"""

from collections.abc import Mapping
from typing import Any

from crds.api_resources import TENANT_QUEUES, TORCHJOBS
from kube.api import Manifest

MISSING_SCHEDULER = "bench-plays-the-node"
"""The name of a scheduler that does not exist."""


def queue(name: str, **spec: Any) -> Manifest:
    """Return a tenant queue."""
    metadata = {"name": name}
    return {"apiVersion": TENANT_QUEUES.api_version, "kind": TENANT_QUEUES.kind, "metadata": metadata, "spec": spec}


def job(name: str, queue: str, tasks: Mapping[str, Any], **spec: Any) -> Manifest:
    """Return a job with these tasks; its scheduling policy is the one in `spec`, with the queue if a queue is named."""
    policy = {**({"queue": queue} if queue else {}), **spec.pop("schedulingPolicy", {})}
    return {
        "apiVersion": TORCHJOBS.api_version,
        "kind": TORCHJOBS.kind,
        "metadata": {"name": name},
        "spec": {"schedulingPolicy": policy, "torchTaskSpecs": tasks, **spec},
    }


def task(labels: Mapping[str, str] | None = None, requests: Mapping[str, str] | None = None, **task: Any) -> Manifest:
    """Return a task whose pods have one container. Without `requests`, the container requests one cpu."""
    resources = {"requests": dict(requests or {"cpu": "1"})}
    container = {"name": "torch", "image": "none", "command": ["true"], "resources": resources}
    spec = {"schedulerName": MISSING_SCHEDULER, "containers": [container]}
    return {**task, "template": {"metadata": {"labels": dict(labels or {})}, "spec": spec}}
