"""The actions of users and admins in a scenario, and the conditions on which they wait.

One rule: a condition depends on the jobs alone, and a step uses the API like every other client.
"""

import contextlib
from collections.abc import Mapping
from typing import Any

import orjson

from coordinator.leader.election import LEASE
from crds import labels, timestamps
from crds.api_resources import (
    GANG_QUEUES,
    LEASES,
    NODES,
    POD_GROUPS,
    PODS,
    SCALE_INS,
    SCALE_OUTS,
    TENANT_QUEUES,
    TORCHJOBS,
)
from kube import errors
from kube.api import Manifest
from tests.faults.api import ApiClient
from tests.faults.scenarios.scenario import NAMESPACE, Condition, Step

TAMPERED = "tampered"


def at_once(_: Mapping[str, Manifest]) -> bool:
    """Return True: the step needs no condition."""
    return True


def phase(job: str, *phases: str) -> Condition:
    """Return the condition that the job is in one of these phases."""
    return lambda jobs: job in jobs and (jobs[job].get("status") or {}).get("phase", "") in phases


def workers(job: str, count: int, *, scaling: bool = False) -> Condition:
    """Return the condition that the job runs with `count` granted workers. With `scaling`, the job must want another
    number.
    """

    def holds(jobs: Mapping[str, Manifest]) -> bool:
        status = (jobs.get(job) or {}).get("status") or {}
        granted = (status.get("admission") or {}).get("workers")
        return (granted, status.get("phase"), "scaling" in status) == (count, "Running", scaling)

    return holds


def scaling(job: str, count: int) -> Condition:
    """Return the condition that the number of workers of the job is changing, or is already `count`."""

    def holds(jobs: Mapping[str, Manifest]) -> bool:
        status = (jobs.get(job) or {}).get("status") or {}
        return "scaling" in status or (status.get("admission") or {}).get("workers") == count

    return holds


def wants(job: str, count: int) -> Condition:
    """Return the condition that the owner wants `count` workers."""
    return lambda jobs: job in jobs and jobs[job]["spec"]["torchTaskSpecs"]["Worker"]["numTasks"] == count


def change(job: str, **spec: Any) -> Step:
    """Return the step that patches the spec of a job."""
    return lambda cluster: cluster.patch(TORCHJOBS, job, {"spec": spec}, NAMESPACE)


def restarted(job: str, times: int = 1) -> Condition:
    """Return the condition that the job counts at least `times` restarts."""
    return lambda jobs: job in jobs and (jobs[job].get("status") or {}).get("restartCount", 0) >= times


def delete(job: str) -> Step:
    """Return the step that deletes a job."""
    return lambda cluster: cluster.delete(TORCHJOBS, job, NAMESPACE)


def new_queue(queue: str, **spec: Any) -> Step:
    """Return the step that creates a queue."""
    body = {"apiVersion": TENANT_QUEUES.api_version, "kind": "TenantQueue", "metadata": {"name": queue}, "spec": spec}
    return lambda cluster: cluster.create(TENANT_QUEUES, body)


def queue_change(queue: str, **spec: Any) -> Step:
    """Return the step that patches the spec of a queue."""
    return lambda cluster: cluster.patch(TENANT_QUEUES, queue, {"spec": spec})


def said(job: str, reason: str) -> Condition:
    """Return the condition that a condition in the status of the job has this reason."""
    return lambda jobs: any(
        each["reason"] == reason for each in ((jobs.get(job) or {}).get("status") or {}).get("conditions") or ()
    )


def obeyed(job: str, request: str) -> Condition:
    """Return the condition that the job has obeyed this request for a restart."""
    return lambda jobs: job in jobs and (jobs[job].get("status") or {}).get("restartRequest") == request


def ask(job: str, **request: Any) -> Step:
    """Return the step that requests a restart of a job."""
    annotations = {labels.RESTART_REQUEST: orjson.dumps(request).decode()}
    return lambda cluster: cluster.patch(TORCHJOBS, job, {"metadata": {"annotations": annotations}}, NAMESPACE)


def all_over(*jobs: str) -> Condition:
    """Return the condition that all of these jobs have succeeded."""
    return lambda found: all(phase(job, "Succeeded")(found) for job in jobs)


def take_back(namespace: str) -> Step:
    """Return the step in which users of another namespace delete their pods and jobs."""

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
    """Install Volcano's kinds and its default queue."""
    cluster.install(POD_GROUPS, GANG_QUEUES)
    kind = {"apiVersion": GANG_QUEUES.api_version, "kind": GANG_QUEUES.kind}
    cluster.create(GANG_QUEUES, {**kind, "metadata": {"name": "default"}, "status": {"state": "Open"}})


def delete_group(job: str, group: str) -> Step:
    """Return the step that deletes a pod group by hand and marks the job as tampered with."""

    def step(cluster: ApiClient) -> None:
        tamper(job)(cluster)
        cluster.delete(POD_GROUPS, group, NAMESPACE)

    return step


def scale(name: str, job: str, **spec: Any) -> Step:
    """Return the step that creates a scale request: a ScaleOut with `toAdd`, else a ScaleIn."""
    resource = SCALE_OUTS if "toAdd" in spec else SCALE_INS
    body = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": {"name": name}}
    request = {**body, "spec": {"selector": {"name": job}, "ttlSecondsAfterFinished": 0, **spec}}
    return lambda cluster: cluster.create(resource, request, NAMESPACE)


def tamper(job: str) -> Step:
    """Return the step that marks a job."""
    return lambda cluster: cluster.patch(TORCHJOBS, job, {"metadata": {"annotations": {TAMPERED: "yes"}}}, NAMESPACE)


def tampered(job: str) -> Condition:
    """Return the condition that the job is marked as tampered with."""
    return lambda jobs: job in jobs and TAMPERED in (jobs[job]["metadata"].get("annotations") or {})


def depose(cluster: ApiClient) -> None:
    """Take the Lease from the leader, as if another process had got the Lease and died at once."""
    since = timestamps.format_micro_time(cluster.now)
    cluster.patch(LEASES, LEASE, {"spec": {"holderIdentity": "gone", "renewTime": since}}, "kube-system")


def evict(job: str, pod: str) -> Step:
    """Return the step in which the node of a pod evicts the pod."""
    killed = {"name": "torch", "state": {"terminated": {"exitCode": 137, "reason": "Error"}}}
    target = {"type": "DisruptionTarget", "status": "True", "reason": "TerminationByKubelet"}
    failed = {"phase": "Failed", "reason": "Evicted", "conditions": [target]}

    def step(cluster: ApiClient) -> None:
        for status in ({"containerStatuses": [killed]}, failed):
            cluster.patch(PODS, pod, {"status": status}, NAMESPACE, subresource="status")

    return _if_there(job, step)


def drain(job: str, pod: str) -> Step:
    """Return the step in which a pod is evicted as `kubectl drain` evicts it. The job is marked."""
    return _and_mark(job, lambda cluster: cluster.evict(pod, NAMESPACE))


def remove(job: str, pod: str) -> Step:
    """Return the step in which a person deletes a pod. The job is marked."""
    return _and_mark(job, lambda cluster: cluster.delete(PODS, pod, NAMESPACE))


def _and_mark(job: str, step: Step) -> Step:
    def marking(cluster: ApiClient) -> None:
        with contextlib.suppress(errors.NotFound):
            step(cluster)
        tamper(job)(cluster)

    return marking


def _if_there(job: str, step: Step) -> Step:
    """Return a step that marks the job if the pod does not exist that `step` changes."""

    def marking(cluster: ApiClient) -> None:
        try:
            step(cluster)
        except errors.NotFound:
            tamper(job)(cluster)

    return marking


def disrupted(job: str) -> Condition:
    """Return the condition that the job has counted a disruption, or is marked since it had no pod to lose."""
    return lambda jobs: bool((jobs[job].get("status") or {}).get("disruptions")) or tampered(job)(jobs)


def silence(node: str) -> Step:
    """Return the step in which a node goes silent: its pods are marked for deletion, but the node never confirms the
    deletion.
    """

    def step(cluster: ApiClient) -> None:
        cluster.patch(NODES, node, {"status": {"conditions": [ready("Unknown", cluster.now)]}}, subresource="status")
        for pod in cluster.list(PODS, NAMESPACE).items:
            if pod["spec"].get("nodeName") == node:
                name = pod["metadata"]["name"]
                target = {"type": "DisruptionTarget", "status": "True", "reason": "DeletionByTaintManager"}
                cluster.patch(PODS, name, {"status": {"conditions": [target]}}, NAMESPACE, subresource="status")
                cluster.delete(PODS, name, NAMESPACE, grace_period_seconds=1)

    return step


def taint(node: str) -> Step:
    """Return the step in which a cloud announces the end of a node."""
    mark = {"key": "aws-node-termination-handler/spot-itn", "value": "1", "effect": "NoSchedule"}
    return lambda cluster: cluster.patch(NODES, node, {"spec": {"taints": [mark]}})


def close(node: str, *, closed: bool = True) -> Step:
    """Return the step in which an admin closes a node for new pods, or opens it again."""
    return lambda cluster: cluster.patch(NODES, node, {"spec": {"unschedulable": closed}})


def ready(status: str, since: float) -> Manifest:
    """Return the Ready condition of a node."""
    return {"type": "Ready", "status": status, "lastTransitionTime": timestamps.format_time(since)}
