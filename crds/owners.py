"""Whose an object is: a pod, a service, a pod group.

One rule: pure. Anybody who may make an object may put any label on it: it is a job's only if the job controls it, and
nothing else of it is ever changed or deleted.
"""

from collections.abc import Mapping
from typing import Any

from crds import labels


def job_uid(metadata: Mapping[str, Any]) -> str:
    """The uid of the TorchJob that an object with this metadata was made for; empty if its labels and the owner that
    controls it do not say the same.

    An owner that is no TorchJob, or has another name, is not believed: garbage collection looks for owners by kind and
    name, so that it would never collect the object.
    """
    found = metadata.get("labels") or {}
    uid = found.get(labels.JOB_UID)
    owners = metadata.get("ownerReferences") or ()
    return uid if uid and any(_is_job(each, uid, found.get(labels.JOB_NAME)) for each in owners) else ""


def _is_job(owner: Mapping[str, Any], uid: str, name: str | None) -> bool:
    if not owner.get("controller") or owner.get("uid") != uid:
        return False
    group, _, _ = str(owner.get("apiVersion", labels.GROUP)).partition("/")
    named = name is None or owner.get("name", name) == name
    return named and group == labels.GROUP and owner.get("kind", "TorchJob") == "TorchJob"
