"""The Events that tell the owner of a job about changes of its number of workers.

One rule: pure, from the change as the status has it.
"""

from datetime import datetime, timedelta

from crds import timestamps
from crds.torchjob.status import GIVE_BACK, IDLE, Scaling, Target
from reconcilers.values import EmitEvent
from reconcilers.views import pod_view

MOST_NAMED = 5


_REASONS = {IDLE: "Grown", GIVE_BACK: "GaveBack"}


def ended(scaling: Scaling, after: int, target: Target | None, now: datetime, before: int) -> EmitEvent:
    """Return the Event for a change that has ended: who wanted it, the owner or the coordinator with its target."""
    message = f"from {before} to {after} workers in {(now - scaling.since).total_seconds():.0f} s"
    if target is not None and (after > before) == (target.reason == IDLE):
        return EmitEvent(_REASONS.get(target.reason, "Scaled"), f"{message}: {target.message}")
    since = timestamps.format_time(scaling.since.timestamp())
    return EmitEvent("Scaled", f"{message}, requested by {scaling.request or 'its owner'} at {since}")


def not_joined(names: tuple[str, ...], time: timedelta, *, again: bool) -> EmitEvent:
    """Return the Event for workers that were given up because they did not join in time; `again`: the owner wants them,
    so that they are added again."""
    listed = pod_view.list_names(names, MOST_NAMED)
    message = f"workers did not join within {time.total_seconds():.0f} s: {listed}"
    after = "they are removed, and added again later" if again else "they are removed"
    return EmitEvent("NotJoined", f"{message}; {after}", warning=True)
