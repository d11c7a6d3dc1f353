"""The changes that a person may ask for of a job: suspend, hold, cancel, resume, bump, move.

One rule: pure. Each change is one patch of the TorchJob, safe to repeat. A job that a change makes no sense for is
refused in words; what else is not possible, the API server refuses.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from coordinator.control.change_author import Change
from coordinator.query.questions import ANOTHER, Document
from coordinator.wording import job_columns, job_state
from crds import labels, timestamps
from crds.torchjob.jobspec import MAX_PRIORITY
from kube import errors
from kube.api import Manifest
from queues.order import BOOST_LIMIT_SECONDS


@dataclass(frozen=True, slots=True)
class Bump:
    """How a waiting job gets to the head of its queue."""

    change: Change | None
    """None if the job is there already."""
    note: str
    """What the person should know, too; empty if there is nothing."""


def refuse_finished(item: Manifest) -> None:
    """Raise Conflict for a job that has finished, which nobody can change."""
    if job_state.is_finished(item):
        raise errors.Conflict(f"job {job_state.display_name(item)} has finished: submit a new job")


def suspend(item: Manifest, purpose: str = "") -> Change:
    """Delete a job's pods and free its charge; `purpose` is the end of the sentence about the change."""
    return _change(item, {"spec": {"suspend": True}}, "JobSuspended", f"suspended{purpose}")


def hold(item: Manifest) -> Change:
    """Keep a waiting job out of the order. Raises Conflict for a job that holds room."""
    if job_state.is_admitted(item):
        name = job_state.display_name(item)
        raise errors.Conflict(f"job {name} holds room already: torchq job suspend deletes its pods")
    return _change(item, {"spec": {"schedulingPolicy": {"hold": True}}}, "JobHeld", "held")


def cancel(item: Manifest) -> Change:
    """End a job for good. Raises Conflict for a job that has ended."""
    if job_state.is_finished(item):
        name, phase = job_state.display_name(item), job_columns.phase(item)
        raise errors.Conflict(f"job {name} has ended already ({phase}): torchq job delete removes it")
    return _change(item, {"spec": {"cancel": True}}, "JobCancelled", "cancelled")


def resume(item: Manifest, now: datetime) -> Change:
    """Let a job go that is suspended, held or delayed. Raises Conflict for a job that has finished."""
    refuse_finished(item)
    patch: dict[str, Any] = {"spec": {"suspend": False}}
    is_held = bool((item["spec"].get("schedulingPolicy") or {}).get("hold"))
    if is_held:
        patch["spec"]["schedulingPolicy"] = {"hold": False}
    if is_held or is_delayed(item):
        patch |= _retry(now)  # also the time from which a job waits that was on hold
    return _change(item, patch, "JobResumed", "resumed")


def move(item: Manifest, queue: str, *, resumed: bool = False) -> Change:
    """Move a job that holds no room to another queue."""
    patch = {"spec": {"schedulingPolicy": {"queue": queue}, **({"suspend": False} if resumed else {})}}
    return _change(item, patch, "JobMoved", f"moved from queue {job_state.queue_of(item)} to {queue}")


def bump(item: Manifest, read: Callable[[str], Document], now: datetime) -> Bump:
    """Move a waiting job to the head of its queue, or as near as its priority can; `read` returns the figures of a
    queue (`Queries.queue`). Raises Conflict for a job that does not wait."""
    if job_state.is_admitted(item) or job_state.is_finished(item):
        raise errors.Conflict(
            f"job {job_state.display_name(item)} does not wait, so its place in the queue cannot change"
        )
    figures = read(queue := job_state.queue_of(item))
    priority = _priority_for_head(item, figures)
    patch: dict[str, Any] = _retry(now) if is_delayed(item) else {}
    if priority is not None:
        patch["spec"] = {"schedulingPolicy": {"priority": priority}}
    if not patch:
        return Bump(None, f"job {job_state.display_name(item)} is already the first of queue {queue}")
    text = f"bumped in queue {queue}" + ("" if priority is None else f" to priority {priority}")
    change = _change(item, patch, "JobBumped", text)
    if priority is None or overtakes(item, figures, priority):
        return Bump(change, "")
    most = f"{BOOST_LIMIT_SECONDS / 86_400:.0f} days of waiting at most"
    return Bump(change, f"note: {_first(figures)} stays before it: priority counts as {most}")


def _first(figures: Manifest) -> str:
    """Return the first job of a queue, for a sentence."""
    first = str(figures["status"]["first"])
    return first if first == ANOTHER else f"job {first}"


def _priority_for_head(item: Manifest, figures: Manifest) -> int | None:
    """Return the priority that makes a job the first of its queue, or comes nearest; None if it is already first."""
    first, score = figures["status"].get("first"), figures["status"].get("firstScore")
    if first is None or first == job_state.display_name(item):
        return None
    aging = figures["spec"]["agingSeconds"]
    most = min(MAX_PRIORITY, int(BOOST_LIMIT_SECONDS // aging))
    needed = int((_submission_time(item) - score) // aging) + 1
    priority = (item["spec"].get("schedulingPolicy") or {}).get("priority", 0)
    return max(int(priority), min(needed, most))


def overtakes(item: Manifest, figures: Manifest, priority: int) -> bool:
    """Return whether a job with that priority comes before the first job of the queue."""
    boost = min(priority * figures["spec"]["agingSeconds"], BOOST_LIMIT_SECONDS)
    return bool(_submission_time(item) - boost < figures["status"]["firstScore"])


def _change(item: Manifest, patch: Manifest, code: str, text: str) -> Change:
    return Change(patch, code, f"job {job_state.display_name(item)} {text}")


def is_delayed(item: Manifest) -> bool:
    """Return whether the job is parked or backs off."""
    queue = (item.get("status") or {}).get("queue") or {}
    return bool(queue.get("parked") or queue.get("notBefore"))


def _retry(now: datetime) -> dict[str, Any]:
    return {"metadata": {"annotations": {labels.RETRY_AT: timestamps.format_micro_time(now)}}}


def _submission_time(item: Manifest) -> float:
    return timestamps.parse_seconds(item["metadata"]["creationTimestamp"])
