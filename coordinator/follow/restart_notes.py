"""The line about a restart or a resize of a job, for a person who follows its output.

One rule: pure. The workers have written the words; each restart or resize is reported once.
"""

from dataclasses import dataclass

from coordinator.follow.endings import true_condition
from crds import excerpts, timestamps
from kube.api import Manifest

LONGEST = 400
"""The most characters of a cause."""


@dataclass(frozen=True, slots=True)
class RestartCounts:
    """How often a job was restarted, by whose fault, and how many workers it has or is about to have."""

    counted: int = 0
    disruptions: int = 0
    workers: int = 0
    """0 if the job holds no room."""


def read(item: Manifest) -> RestartCounts:
    """Return the counts of a job."""
    status = item.get("status") or {}
    granted = (status.get("admission") or {}).get("workers") or 0
    workers = min(granted, (status.get("scaling") or {}).get("to") or granted)
    return RestartCounts(status.get("restartCount", 0), status.get("disruptions", 0), workers)


def describe(before: RestartCounts, item: Manifest, now: float) -> str:
    """Return the line about what has happened since the earlier counts; empty if nothing has happened. `now` is in
    seconds since the epoch.
    """
    status, after = item.get("status") or {}, read(item)
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
    cause = excerpts.excerpt(excerpts.one_line(why), LONGEST)
    return f"{what}{when}{f': {cause}' if cause else ''}"
