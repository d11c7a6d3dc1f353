"""A request to recreate a pod's containers, as a reconcile sees it.

One rule: no code outside of this module reads such a request's manifest. A request is done only if it completed,
carries no error message and every container succeeded; after any other end it failed.

The requests are OpenKruise's (apps.kruise.io, ContainerRecreateRequest).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from crds import integers, labels, timestamps
from crds.api_resources import RECREATE_REQUESTS, Resource
from kube.api import Cluster, Manifest
from kube.informer import Informer


@dataclass(frozen=True, slots=True, kw_only=True)
class RecreateView:
    """One request."""

    namespace: str
    name: str
    uid: str
    job_uid: str
    pod: str
    pod_uid: str
    """The uid of the pod that the request was created for; it does not apply to a later pod of the same name."""
    generation: int
    """The restart generation that the request brings the pod to."""
    created: float | None
    """The creation time in seconds since the epoch."""
    restarts: int = 0
    """The number of restarts of the pod's main container that were counted when the request was created."""
    verdict: Literal["InProgress", "Done", "Failed"] = "InProgress"
    message: str = ""


class RecreateCache(Protocol):
    """A current copy of the requests with torchq's labels, by job uid (`recreations_informer`)."""

    def indexed(self, key: str) -> list[RecreateView]:
        """Return the requests for pods with a job's uid."""


def trim(manifest: Manifest) -> RecreateView:
    """Return the view of a request that carries torchq's labels."""
    metadata, spec, status = manifest["metadata"], manifest.get("spec") or {}, manifest.get("status") or {}
    request_labels: Mapping[str, str] = metadata.get("labels") or {}
    annotations: Mapping[str, str] = metadata.get("annotations") or {}
    verdict, message = _judge(status)
    return RecreateView(
        namespace=metadata["namespace"],
        name=metadata["name"],
        uid=metadata["uid"],
        job_uid=job_uid(metadata),
        pod=str(spec.get("podName", "")),
        pod_uid=annotations.get(labels.POD_UID, ""),
        generation=integers.parse(request_labels.get(labels.RESTART), -1),
        created=timestamps.seconds_or_none(metadata.get("creationTimestamp")),
        restarts=integers.parse(annotations.get(labels.RESTARTS_HANDLED), 0),
        verdict=verdict,
        message=message,
    )


def job_uid(metadata: Mapping[str, Any]) -> str:
    """Return the uid of the job that a request was created for; empty unless the request names its pod and is owned by
    the pod."""
    pod = (metadata.get("annotations") or {}).get(labels.POD_UID)
    is_owned = any(owner.get("uid") == pod for owner in metadata.get("ownerReferences") or ())
    return str((metadata.get("labels") or {}).get(labels.JOB_UID, "")) if pod and is_owned else ""


def recreations_informer(cluster: Cluster, resource: Resource = RECREATE_REQUESTS) -> Informer[RecreateView]:
    """Return a worker process's cache of the requests, in a version that is served; the caller starts it."""
    return Informer(
        cluster,
        resource,
        trim=trim,
        index=lambda request: request.job_uid or None,
        label_selector=labels.JOB_UID,
    )


def _judge(status: Mapping[str, Any]) -> tuple[Literal["InProgress", "Done", "Failed"], str]:
    if status.get("phase") != "Completed":
        return "InProgress", ""
    if status.get("message"):
        return "Failed", str(status["message"])
    states = status.get("containerRecreateStates") or ()
    failed_state = next((state for state in states if state.get("phase") != "Succeeded"), None)
    if failed_state is not None:
        problem = failed_state.get("message") or failed_state.get("phase") or "not recreated"
        return "Failed", f"container {failed_state.get('name')}: {problem}"
    return ("Done", "") if states else ("Failed", "it completed without recreating any container")
