"""A request to recreate a pod's containers, as a reconcile sees it.

One rule: nothing beyond this module reads such a request's manifest. It is done only if it ran to its end, says nothing
against itself and every container succeeded; whatever else ended it, it failed.

The requests are OpenKruise's (apps.kruise.io, ContainerRecreateRequest).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from cluster.api import Manifest
from crds import labels


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
    created: str
    """RFC 3339."""
    verdict: Literal["InProgress", "Done", "Failed"] = "InProgress"
    message: str = ""


def trim(manifest: Manifest) -> RecreateView:
    """What matters of a request that carries our labels."""
    metadata, spec, status = manifest["metadata"], manifest.get("spec") or {}, manifest.get("status") or {}
    marks: Mapping[str, str] = metadata.get("labels") or {}
    generation = marks.get(labels.RESTART, "")
    verdict, message = _judged(status)
    return RecreateView(
        namespace=metadata["namespace"],
        name=metadata["name"],
        uid=metadata["uid"],
        job_uid=marks.get(labels.JOB_UID, ""),
        pod=str(spec.get("podName", "")),
        pod_uid=(metadata.get("annotations") or {}).get(labels.POD_UID, ""),
        generation=int(generation) if generation.isdecimal() else -1,
        created=metadata.get("creationTimestamp") or "",
        verdict=verdict,
        message=message,
    )


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
