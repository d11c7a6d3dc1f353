"""Whose an object is: a pod, a service, a pod group.

One rule: pure. Anybody who may make an object may put any label on it: it is a job's only if the job controls it, and
nothing else of it is ever changed or deleted.
"""

from collections.abc import Mapping
from typing import Any

from crds import labels


def job_uid(metadata: Mapping[str, Any]) -> str:
    """The uid of the TorchJob that an object with this metadata was made for; empty if its label and the owner that
    controls it do not say the same."""
    uid = (metadata.get("labels") or {}).get(labels.JOB_UID)
    owners = metadata.get("ownerReferences") or ()
    return uid if uid and any(each.get("controller") and each.get("uid") == uid for each in owners) else ""
