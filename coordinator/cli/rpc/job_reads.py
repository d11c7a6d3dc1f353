"""Calls that read jobs.

One rule: nothing is changed; a job is found by the rules of the command line.
"""

from collections.abc import Mapping
from typing import Any

from coordinator.cli import columns, job_ref
from coordinator.cli.rpc import command_output
from coordinator.cli.rpc.cluster_access import ClusterAccess
from coordinator.cli.rpc.open_call import OpenCall
from crds import labels, owners
from crds.api_resources import PODS, TORCHJOBS
from kube.api import Manifest
from reconcilers.views import pod_outcome

Params = Mapping[str, Any]


def find(access: ClusterAccess, params: Params, _call: OpenCall) -> str:
    """Return the handle of a job."""
    return str(job_ref.key(job_ref.find(access.session, params["name"])))


def list_jobs(access: ClusterAccess, params: Params, _call: OpenCall) -> list[str]:
    """Return the handles of jobs in the order of submission."""
    namespace = params.get("namespace") or access.session.namespace
    items = access.session.cluster.list(TORCHJOBS, "" if params.get("all_namespaces") else namespace).items
    queue, wanted = params.get("queue"), params.get("phase")
    chosen = (item for item in items if queue in (None, columns.queue_of(item)) and wanted in (None, phase_of(item)))
    return [str(job_ref.key(item)) for item in sorted(chosen, key=columns.submission_order)]


def phase_of(item: Manifest) -> str:
    """Return the phase of a job, as its list shows it."""
    return str((item.get("status") or {}).get("phase") or "Pending")


def phase(access: ClusterAccess, params: Params, _call: OpenCall) -> str:
    """Return the phase of a job."""
    return phase_of(job_ref.find(access.session, params["job"]))


def why(access: ClusterAccess, params: Params, call: OpenCall) -> Any:
    """Return why a job waits."""
    return command_output.run(access.session, call, "job", "why", "-o", "json", "--", params["job"]).parse()


def position(access: ClusterAccess, params: Params, call: OpenCall) -> int | None:
    """Return the place of a job in its queue; None if it does not wait in one."""
    document = command_output.run(access.session, call, "job", "position", "-o", "json", "--", params["job"]).parse()
    place = document.get("position") if document.get("state") == "waiting" else None
    return None if place is None else int(place)


def details(access: ClusterAccess, params: Params, call: OpenCall) -> Any:
    """Return a job with all that is known about it."""
    return command_output.run(access.session, call, "job", "show", "-o", "json", "--", params["job"]).parse()


def pods(access: ClusterAccess, params: Params, _call: OpenCall) -> list[dict[str, Any]]:
    """Return the pods of a job."""
    metadata = job_ref.find(access.session, params["job"])["metadata"]
    selector = f"{labels.JOB_UID}={metadata['uid']}"
    items = access.session.cluster.list(PODS, metadata["namespace"], label_selector=selector).items
    return [describe_pod(item) for item in items if owners.job_uid(item["metadata"])]


def describe_pod(item: Manifest) -> dict[str, Any]:
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
