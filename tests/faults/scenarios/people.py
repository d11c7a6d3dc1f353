"""What people do to a cluster in a scenario, and what they wait for before they do it.

One rule: a condition looks at the jobs alone; a step goes through the API, as everybody's.
"""

import contextlib
from collections.abc import Mapping
from typing import Any

import orjson

from crds import labels, timestamps
from crds.api_resources import GANG_QUEUES, NODES, POD_GROUPS, PODS, TENANT_QUEUES, TORCHJOBS
from kube import errors
from kube.api import Manifest
from tests.faults.api import ApiClient
from tests.faults.scenarios.scenario import NAMESPACE, Condition, Step

TAMPERED = "tampered"


def at_once(_: Mapping[str, Manifest]) -> bool:
    """Without waiting for anything."""
    return True


def phase(job: str, *phases: str) -> Condition:
    """Whether the job has come to one of these phases."""
    return lambda jobs: job in jobs and (jobs[job].get("status") or {}).get("phase", "") in phases


def change(job: str, **spec: Any) -> Step:
    """The owner patches the spec."""
    return lambda cluster: cluster.patch(TORCHJOBS, job, {"spec": spec}, NAMESPACE)


def delete(job: str) -> Step:
    """The owner deletes the job."""
    return lambda cluster: cluster.delete(TORCHJOBS, job, NAMESPACE)


def new_queue(queue: str, **spec: Any) -> Step:
    """The admin makes a queue."""
    body = {"apiVersion": TENANT_QUEUES.api_version, "kind": "TenantQueue", "metadata": {"name": queue}, "spec": spec}
    return lambda cluster: cluster.create(TENANT_QUEUES, body)


def queue_change(queue: str, **spec: Any) -> Step:
    """The admin patches a queue."""
    return lambda cluster: cluster.patch(TENANT_QUEUES, queue, {"spec": spec})


def said(job: str, reason: str) -> Condition:
    """Whether some condition of the job has this reason."""
    return lambda jobs: any(
        each["reason"] == reason for each in ((jobs.get(job) or {}).get("status") or {}).get("conditions") or ()
    )


def obeyed(job: str, request: str) -> Condition:
    """Whether a request for a restart was obeyed."""
    return lambda jobs: job in jobs and (jobs[job].get("status") or {}).get("restartRequest") == request


def ask(job: str, **request: Any) -> Step:
    """The owner asks for a restart."""
    annotations = {labels.RESTART_REQUEST: orjson.dumps(request).decode()}
    return lambda cluster: cluster.patch(TORCHJOBS, job, {"metadata": {"annotations": annotations}}, NAMESPACE)


def all_over(*jobs: str) -> Condition:
    """Whether all of these jobs have succeeded."""
    return lambda found: all(phase(job, "Succeeded")(found) for job in jobs)


def take_back(namespace: str) -> Step:
    """The users of another namespace take back what they have made."""

    def step(cluster: ApiClient) -> None:
        for resource in (PODS, TORCHJOBS):
            for each in cluster.list(resource, namespace).items:
                name = each["metadata"]["name"]
                if each["metadata"].get("finalizers"):
                    cluster.patch(resource, name, {"metadata": {"finalizers": None}}, namespace)
                with contextlib.suppress(errors.NotFound):
                    cluster.delete(resource, name, namespace, grace_period_seconds=0)

    return step


def install_volcano(cluster: ApiClient) -> None:
    """The admin does."""
    cluster.install(POD_GROUPS, GANG_QUEUES)
    kind = {"apiVersion": GANG_QUEUES.api_version, "kind": GANG_QUEUES.kind}
    cluster.create(GANG_QUEUES, {**kind, "metadata": {"name": "default"}, "status": {"state": "Open"}})


def delete_group(job: str, group: str) -> Step:
    """Somebody deletes a pod group by hand, and says so."""

    def step(cluster: ApiClient) -> None:
        cluster.patch(TORCHJOBS, job, {"metadata": {"annotations": {TAMPERED: "yes"}}}, NAMESPACE)
        cluster.delete(POD_GROUPS, group, NAMESPACE)

    return step


def tampered(job: str) -> Condition:
    """Whether somebody did."""
    return lambda jobs: job in jobs and TAMPERED in (jobs[job]["metadata"].get("annotations") or {})


def silence(node: str) -> Step:
    """A node is heard of no more, and whoever watches over nodes has its pods deleted, which it does not confirm."""

    def step(cluster: ApiClient) -> None:
        cluster.patch(NODES, node, {"status": {"conditions": [ready("Unknown", cluster.now)]}}, subresource="status")
        for pod in cluster.list(PODS, NAMESPACE).items:
            if pod["spec"].get("nodeName") == node:
                name = pod["metadata"]["name"]
                target = {"type": "DisruptionTarget", "status": "True", "reason": "DeletionByTaintManager"}
                cluster.patch(PODS, name, {"status": {"conditions": [target]}}, NAMESPACE, subresource="status")
                cluster.delete(PODS, name, NAMESPACE, grace_period_seconds=1)

    return step


def ready(status: str, since: float) -> Manifest:
    """A node's condition."""
    return {"type": "Ready", "status": status, "lastTransitionTime": timestamps.format_time(since)}
