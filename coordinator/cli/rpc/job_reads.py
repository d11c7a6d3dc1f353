"""Calls that read jobs.

One rule: a job is found by the rules of the command line.
"""

from typing import Any

from coordinator.cli import job_ref
from coordinator.cli.rpc.call_context import ClusterAccess, OpenCall, Params
from coordinator.follow import job_objects
from coordinator.wording import job_state
from crds import labels
from crds.api_resources import TORCHJOBS
from crds.keys import JobKey
from kube.api import Manifest
from reconcilers.views import pod_outcome


def find(access: ClusterAccess, params: Params, _call: OpenCall) -> str:
    """Return the handle of a job."""
    return str(job_ref.key(job_ref.find(access.session, params["name"])))


def list_jobs(access: ClusterAccess, params: Params, _call: OpenCall) -> list[str]:
    """Return the handles of jobs in the order of submission."""
    namespace = params.get("namespace") or access.session.namespace
    items = access.session.cluster.list(TORCHJOBS, "" if params.get("all_namespaces") else namespace).items
    queue, wanted = params.get("queue"), params.get("phase")
    chosen = (item for item in items if queue in (None, job_state.queue_of(item)) and wanted in (None, _phase(item)))
    return [str(job_ref.key(item)) for item in sorted(chosen, key=job_state.submission_order)]


def _phase(item: Manifest) -> str:
    return str((item.get("status") or {}).get("phase") or "Pending")


def phase(access: ClusterAccess, params: Params, _call: OpenCall) -> str:
    """Return the phase of a job."""
    return _phase(job_ref.find(access.session, params["job"]))


def pods(access: ClusterAccess, params: Params, _call: OpenCall) -> list[dict[str, Any]]:
    """Return the pods of a job."""
    key = JobKey.of(job_ref.find(access.session, params["job"]))
    return [*map(_describe, job_objects.pods(access.session.cluster, key))]


def _describe(item: Manifest) -> dict[str, Any]:
    """Return a pod in the words of the command line."""
    metadata, status = item["metadata"], item.get("status") or {}
    pod_labels = metadata.get("labels") or {}
    containers = status.get("containerStatuses") or ()
    ready = any(each["type"] == "Ready" and each["status"] == "True" for each in status.get("conditions") or ())
    return {
        "name": metadata["name"],
        "task": pod_labels.get(labels.TASK_TYPE, ""),
        "index": int(pod_labels.get(labels.TASK_INDEX) or 0),
        "phase": pod_outcome.effective_phase(item),
        "ready": ready,
        "node": (item.get("spec") or {}).get("nodeName") or "",
        "restarts": sum(each.get("restartCount", 0) for each in containers),
    }
