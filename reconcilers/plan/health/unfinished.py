"""The pods for which a running job waits, because others of their world have ended with 0.

One rule: pure. The condition Running names these pods, so that whoever reads the job knows why it has not ended; after
ten minutes the condition also names the limit of such a wait, and so does an Event.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from crds import timestamps
from crds.torchjob import conditions
from crds.torchjob.conditions import RANKS_REMEDY, WAITS_FOR_RANKS
from crds.torchjob.status import TorchJobStatus
from crds.torchjob.torchjob import TorchJob
from reconcilers.plan import progress
from reconcilers.plan.health import finding
from reconcilers.pods import task_members
from reconcilers.pods.task_members import PodMember
from reconcilers.values import EmitEvent
from reconcilers.views.pod_view import PodView

SOON, LONG = 5.0, 600.0
"""The seconds after the first end at which the condition names the others, and says what limits the wait. Most ranks
end together, and a job that ends needs no such write."""
MOST_NAMED = 3


@dataclass(frozen=True, slots=True)
class UnfinishedPods:
    """The pods for which a job waits."""

    names: str
    """The first of them, with their ranks."""
    since: float
    """When the first pod of the others ended, in seconds since the epoch."""

    def describe(self, *, is_long: bool) -> str:
        """Return the sentence about these pods."""
        since = timestamps.format_time(self.since)
        return f"the job waits for {self.names}, as others have ended with 0 since {since}" + (
            f"; {RANKS_REMEDY}" if is_long else ""
        )


def find(job: TorchJob, members: Mapping[str, PodMember], pods: Iterable[PodView]) -> UnfinishedPods | None:
    """Return the pods for which an admitted job waits; None if none of its present stages has a pod that succeeded, or
    all of their pods have."""
    if not task_members.needs_all_tasks(job):
        return None
    decisive = {task_type.lower() for task_type in task_members.decisive_tasks(job)} - progress.completed_tasks(job)
    present = [pod for pod in pods if pod.task in decisive and not progress.is_outdated(job, pod)]
    ends = [pod.ended for pod in present if pod.phase == "Succeeded" and pod.ended is not None]
    waits_for = [pod for pod in present if pod.phase not in ("Succeeded", "Pending") and not pod.gated]
    if not ends or not waits_for:
        return None
    order = {name: place for place, name in enumerate(members)}
    first = sorted(waits_for, key=lambda pod: order[pod.name])[: MOST_NAMED + 1]
    names = [_name(members[pod.name]) for pod in first[:MOST_NAMED]] + ["others"] * (len(first) > MOST_NAMED)
    return UnfinishedPods(" and ".join(filter(None, (", ".join(names[:-1]), names[-1]))), min(ends))


def _name(member: PodMember) -> str:
    return f"pod {member.name}" if member.rank is None else f"rank {member.rank} (pod {member.name})"


def show(after: TorchJobStatus, found: UnfinishedPods | None, message: str, now: datetime) -> TorchJobStatus:
    """Return the status of a job whose condition Running names the pods for which it waits; `message` is the message
    for a job that waits for no pods. Another reason of the condition stays.
    """
    running = conditions.find(after.conditions, "Running")
    if running is None or running.status != "True" or running.reason not in ("Running", WAITS_FOR_RANKS):
        return after
    waited = now.timestamp() - found.since if found is not None else 0.0
    if found is not None and waited >= SOON:
        text = found.describe(is_long=waited >= LONG)
        return after.model_copy(update={"conditions": finding.show(after, WAITS_FOR_RANKS, text)})
    if running.reason == WAITS_FOR_RANKS:
        return after.model_copy(update={"conditions": finding.show(after, "Running", message)})
    return after


def event(before: TorchJobStatus, after: TorchJobStatus) -> tuple[EmitEvent, ...]:
    """Return the Event about a wait that has become long."""
    known, running = (conditions.find(each.conditions, "Running") for each in (before, after))
    if (
        running is None
        or not running.message.endswith(RANKS_REMEDY)
        or (known and known.message.endswith(RANKS_REMEDY))
    ):
        return ()
    return (EmitEvent(WAITS_FOR_RANKS, running.message, warning=True),)


def next_change(found: UnfinishedPods | None, now: datetime) -> float | None:
    """Return the seconds until the condition changes although no event arrives; None if it does not."""
    if found is None:
        return None
    due = (found.since + delay - now.timestamp() for delay in (SOON, LONG))
    return next((seconds for seconds in due if seconds > 0), None)
