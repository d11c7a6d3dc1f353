"""The Events that tell the owner of a job about changes of its number of workers.

One rule: pure, from the change as the status has it.
"""

from datetime import datetime, timedelta

from crds import timestamps
from crds.torchjob.status import Scaling
from reconcilers.values import EmitEvent
from reconcilers.views import pod_view

MOST_NAMED = 5


def scaled(scaling: Scaling, before: int, after: int, now: datetime) -> EmitEvent:
    """Return the Event for a change that has ended."""
    who = scaling.request or "its owner"
    seconds = (now - scaling.since).total_seconds()
    since = timestamps.format_time(scaling.since.timestamp())
    return EmitEvent("Scaled", f"from {before} to {after} workers in {seconds:.0f} s, requested by {who} at {since}")


def not_joined(names: tuple[str, ...], time: timedelta) -> EmitEvent:
    """Return the Event for workers that were given up because they did not join in time."""
    listed = pod_view.list_names(names, MOST_NAMED)
    message = f"workers did not join within {time.total_seconds():.0f} s: {listed}"
    return EmitEvent("NotJoined", f"{message}; they are removed, and added again later", warning=True)
