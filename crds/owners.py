"""Whose a pod is.

One rule: pure. Anybody who may make pods may put any label on them: a pod is a job's only if the job controls it.
"""

from collections.abc import Mapping
from typing import Any

from crds import labels


def job_uid(metadata: Mapping[str, Any]) -> str:
    """The uid of the TorchJob that a pod with this metadata was made for; empty if its label and the owner that
    controls it do not say the same."""
    uid = (metadata.get("labels") or {}).get(labels.JOB_UID)
    owners = metadata.get("ownerReferences") or ()
    return uid if uid and any(each.get("controller") and each.get("uid") == uid for each in owners) else ""
