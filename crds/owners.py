"""The TorchJob that owns an object: a pod, a service or a pod group.

One rule: pure. Labels alone prove nothing, since any creator of an object can set them. An object belongs to a job only
if the job is its controller, and torchq never changes or deletes any other object.
"""

from collections.abc import Mapping
from typing import Any

from crds import labels


def job_uid(metadata: Mapping[str, Any]) -> str:
    """Return the uid of the TorchJob that owns an object with this metadata.

    The result is empty if the labels and the controlling owner do not name the same job. An owner of another kind or
    name is ignored: garbage collection finds owners by kind and name, so it would never delete the object.
    """
    job_labels = metadata.get("labels") or {}
    uid = job_labels.get(labels.JOB_UID)
    owners = metadata.get("ownerReferences") or ()
    return uid if uid and any(_is_job(owner, uid, job_labels.get(labels.JOB_NAME)) for owner in owners) else ""


def is_disguised(metadata: Mapping[str, Any], uid: str) -> bool:
    """Return whether a job controls an object although the labels of the object do not name the job any more."""
    return not job_uid(metadata) and any(_is_job(owner, uid, None) for owner in metadata.get("ownerReferences") or ())


def _is_job(owner: Mapping[str, Any], uid: str, name: str | None) -> bool:
    if not owner.get("controller") or owner.get("uid") != uid:
        return False
    group, _, _ = str(owner.get("apiVersion", labels.GROUP)).partition("/")
    same_name = name is None or owner.get("name", name) == name
    return same_name and group == labels.GROUP and owner.get("kind", "TorchJob") == "TorchJob"
