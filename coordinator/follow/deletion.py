"""A job that is being deleted, and the objects that keep it: its finalizers, and its pods until they have ended.

One rule: pure. A job that is being deleted reaches no other end, whatever its status says.
"""

from collections.abc import Sequence

from kube.api import Manifest
from reconcilers.views import pod_view

DELETING = "Deleting"
"""The phase of such a job for people."""
MOST_PODS = 5
"""The most pods that are named."""


def is_deleting(item: Manifest) -> bool:
    """Return whether a job is being deleted."""
    return "deletionTimestamp" in item["metadata"]


def held_by(item: Manifest) -> str:
    """Return the finalizers that keep the job, separated by commas; `foregroundDeletion` stays as long as its pods."""
    return ", ".join(item["metadata"].get("finalizers") or ())


def describe(item: Manifest, pods: Sequence[Manifest] = ()) -> str:
    """Return since when a job is being deleted, and what the deletion waits for, as a sentence."""
    names = sorted(pod["metadata"]["name"] for pod in pods)
    due = max((pod["metadata"].get("deletionTimestamp") or "" for pod in pods), default="")
    until = f" (their grace ends at {due})" if due else ""
    waits = [
        f"finalizers keep it: {held_by(item)}" if held_by(item) else "",
        f"it waits for its pods {pod_view.list_names(names, MOST_PODS)}{until}" if names else "",
    ]
    since = f"it is being deleted since {item['metadata']['deletionTimestamp']}"
    return "; ".join(filter(None, [since, *waits]))
