"""A request to recreate a pod's containers, as a reconcile sees it.

One rule: nothing beyond this module reads such a request's manifest. It is done only if it ran to its end, says nothing
against itself and every container succeeded; whatever else ended it, it failed.

The requests are OpenKruise's (apps.kruise.io, ContainerRecreateRequest).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from crds import integers, labels
from crds.api_resources import RECREATE_REQUESTS
from kube.api import Cluster, Manifest
from kube.informer import Informer
from reconcilers.views import timestamps


@dataclass(frozen=True, slots=True, kw_only=True)
class RecreateView:
    """One request."""

    namespace: str
    name: str
    uid: str
    job_uid: str
    pod: str
    pod_uid: str
    """Of the pod it was made for; a namesake is not meant."""
    generation: int
    """The restart generation it is to bring the pod to."""
    created: float | None
    """In seconds since the epoch."""
    restarts: int = 0
    """How many restarts of the pod's main container had been seen to when it was made."""
    verdict: Literal["InProgress", "Done", "Failed"] = "InProgress"
    message: str = ""


class RecreateCache(Protocol):
    """A current copy of the requests that carry our labels, by job uid (`recreations_informer`)."""

    def indexed(self, key: str) -> list[RecreateView]:
        """The requests for pods of a job's uid."""


def trim(manifest: Manifest) -> RecreateView:
    """What matters of a request that carries our labels."""
    metadata, spec, status = manifest["metadata"], manifest.get("spec") or {}, manifest.get("status") or {}
    marks: Mapping[str, str] = metadata.get("labels") or {}
    notes: Mapping[str, str] = metadata.get("annotations") or {}
    verdict, message = _judged(status)
    return RecreateView(
        namespace=metadata["namespace"],
        name=metadata["name"],
        uid=metadata["uid"],
        job_uid=job_uid(metadata),
        pod=str(spec.get("podName", "")),
        pod_uid=notes.get(labels.POD_UID, ""),
        generation=_number(marks.get(labels.RESTART, "")),
        created=timestamps.seconds(metadata.get("creationTimestamp")),
        restarts=max(0, _number(notes.get(labels.RESTARTS_SETTLED, ""))),
        verdict=verdict,
        message=message,
    )


def job_uid(metadata: Mapping[str, Any]) -> str:
    """The uid of the job that a request was made for; empty unless it says itself for which pod, and goes with it."""
    pod = (metadata.get("annotations") or {}).get(labels.POD_UID)
    owned = any(each.get("uid") == pod for each in metadata.get("ownerReferences") or ())
    return str((metadata.get("labels") or {}).get(labels.JOB_UID, "")) if pod and owned else ""


def recreations_informer(
    cluster: Cluster, on_change: Callable[[RecreateView | None, RecreateView | None], None] | None = None
) -> Informer[RecreateView]:
    """The cache a worker process keeps of the requests, where their kind is installed; to be started by the wiring."""
    return Informer(
        cluster,
        RECREATE_REQUESTS,
        trim=trim,
        index=lambda request: request.job_uid or None,
        label_selector=labels.JOB_UID,
        on_change=on_change,
    )


def _number(text: str) -> int:
    """-1 for what is none."""
    return integers.bounded(text, -1)


def _judged(status: Mapping[str, Any]) -> tuple[Literal["InProgress", "Done", "Failed"], str]:
    if status.get("phase") != "Completed":
        return "InProgress", ""
    if status.get("message"):
        return "Failed", str(status["message"])
    states = status.get("containerRecreateStates") or ()
    bad = next((each for each in states if each.get("phase") != "Succeeded"), None)
    if bad is not None:
        return "Failed", f"container {bad.get('name')}: {bad.get('message') or bad.get('phase') or 'not recreated'}"
    return ("Done", "") if states else ("Failed", "it completed without recreating any container")
