"""Why a job has no pods, does not end or was restarted, from its status.

One rule: the coordinator and the workers have written the words.
"""

from dataclasses import dataclass
from typing import Any

from coordinator.follow.endings import true_condition
from crds import excerpts, timestamps
from crds.torchjob.conditions import FINISHED, USUAL, WAITS_FOR_RANKS
from kube.api import Manifest

NEVER = ("ExceedsQuota", "QueueNotFound", "NotAllowed", "ClaimsNotCounted", "PriorityClassNotFound")
"""Reasons of a job that can never run, unless an admin changes something."""
LONGEST_CAUSE = 400
"""The most characters of the cause of a restart."""


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


@dataclass(frozen=True, slots=True)
class RestartCounts:
    """How often a job was restarted, by whose fault, and how many workers it has or is about to have."""

    counted: int = 0
    disruptions: int = 0
    workers: int = 0
    """0 if the job holds no room."""


def restart_counts(item: Manifest) -> RestartCounts:
    """Return the counts of a job."""
    status = item.get("status") or {}
    granted = (status.get("admission") or {}).get("workers") or 0
    workers = min(granted, (status.get("scaling") or {}).get("to") or granted)
    return RestartCounts(status.get("restartCount", 0), status.get("disruptions", 0), workers)


def describe_restart(before: RestartCounts, item: Manifest, now: float) -> str:
    """Return the line about a restart or a resize since the earlier counts; empty if there was none. `now` is in
    seconds since the epoch.
    """
    status, after = item.get("status") or {}, restart_counts(item)
    if after.counted > before.counted:
        what = f"restart {after.counted} of {item['spec'].get('backoffLimit', 6)}"
    elif after.disruptions > before.disruptions:
        what = f"restart that is not the job's fault, number {after.disruptions}"
    elif before.workers and after.workers and before.workers != after.workers:
        return f"resize from {before.workers} to {after.workers} workers"
    else:
        return ""
    due = timestamps.seconds_or_none(status.get("restartNotBefore"))
    when = f" in {due - now:.0f}s" if after.counted > before.counted and due is not None and due > now + 1 else ""
    admitted = true_condition(item, "Admitted")  # it says why a job restarts, until the job runs again
    why = str(admitted.get("message") or "") if admitted.get("reason") == "Restarting" else ""
    cause = excerpts.excerpt(excerpts.one_line(why), LONGEST_CAUSE)
    return f"{what}{when}{f': {cause}' if cause else ''}"
