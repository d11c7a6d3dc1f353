"""Why a job has no pods, or does not end, from its status.

One rule: the coordinator and the workers have written the words.
"""

from typing import Any

from coordinator.follow.endings import true_condition
from crds.torchjob.conditions import FINISHED, USUAL, WAITS_FOR_RANKS
from kube.api import Manifest

NEVER = ("ExceedsQuota", "QueueNotFound", "NotAllowed", "ClaimsNotCounted", "PriorityClassNotFound")
"""Reasons of a job that can never run, unless an admin changes something."""


def is_waiting(item: Manifest) -> bool:
    """Return whether a job has not ended and holds no room."""
    status = item.get("status") or {}
    return status.get("phase") not in FINISHED and not status.get("admission")


def never_runs(item: Manifest) -> bool:
    """Return whether a waiting job can never run in the present state of the cluster."""
    return is_waiting(item) and _queue(item).get("reason") in NEVER


def explain(item: Manifest) -> str:
    """Return why a job waits, or why it has ended."""
    status, spec = item.get("status") or {}, item.get("spec") or {}
    phase, queue = status.get("phase") or "", _queue(item)
    if phase in FINISHED:
        return f"{phase}: {true_condition(item, phase).get('message') or 'it has ended'}"
    if spec.get("suspend"):
        return "it is suspended (torchq job resume starts it)"
    policy = spec.get("schedulingPolicy") or {}
    if policy.get("hold"):
        return "it is held (torchq job resume lets it go)"
    if queue.get("reason"):
        return f"{queue.get('message') or 'it waits'} ({queue['reason']})"
    queued = true_condition(item, "Queued").get("message")
    return str(queued or f"in queue {policy.get('queue') or item['metadata']['namespace']}")


def for_ranks(item: Manifest) -> str:
    """Return for which pods a running job waits, because others have ended with 0; empty if the job waits for no
    pods."""
    running = true_condition(item, "Running")
    return str(running.get("message") or "") if running.get("reason") == WAITS_FOR_RANKS else ""


def of_pods(item: Manifest) -> tuple[str, str]:
    """Return the reason and the message why pods of an admitted job cannot be made, have no node or do not start; empty
    if the status names none."""
    status = item.get("status") or {}
    if not status.get("admission") or status.get("phase") in FINISHED:
        return "", ""
    for kind in ("Running", "Admitted"):
        found = true_condition(item, kind)
        if found and found.get("reason") not in (*USUAL, WAITS_FOR_RANKS):
            return str(found.get("reason") or ""), str(found.get("message") or "")
    return "", ""


def _queue(item: Manifest) -> dict[str, Any]:
    return (item.get("status") or {}).get("queue") or {}
