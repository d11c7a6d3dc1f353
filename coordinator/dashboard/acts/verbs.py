"""The verbs that pages offer for jobs and queues, and for which state of an object each of them makes sense.

One rule: pure. A verb that is not offered may still be asked for, as a page may be old: the change itself says then
why it is refused.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType

from coordinator.control import job_changes, queue_changes
from coordinator.control.change_author import Change
from coordinator.wording import job_state
from kube.api import Manifest

JOB, QUEUE = "job", "queue"


@dataclass(frozen=True, slots=True)
class Verb:
    """Something that can be done to an object."""

    name: str
    label: str
    means: str
    """What it does, as the command of that name says."""
    is_offered: Callable[[Manifest], bool]
    is_grave: bool = False
    """Whether work may be lost."""


def _scheduling(item: Manifest) -> Manifest:
    found: Manifest = (item.get("spec") or {}).get("schedulingPolicy") or {}
    return found


def _is_open(item: Manifest) -> bool:
    """Return whether a job can still be changed."""
    is_ending = (item.get("spec") or {}).get("cancel") or item["metadata"].get("deletionTimestamp")
    return not (job_state.is_finished(item) or is_ending)


def _is_suspended(item: Manifest) -> bool:
    return bool((item.get("spec") or {}).get("suspend"))


def _is_held(item: Manifest) -> bool:
    return bool(_scheduling(item).get("hold"))


def _waits(item: Manifest) -> bool:
    return _is_open(item) and not job_state.is_admitted(item) and not _is_suspended(item)


def _policy(item: Manifest) -> str:
    return str((item.get("spec") or {}).get("stopPolicy") or "None")


JOB_VERBS = (
    Verb("resume", "Resume", "Let the job go: it takes its place in its queue.",
         lambda item: _is_open(item) and (_is_suspended(item) or _is_held(item) or job_changes.is_delayed(item))),
    Verb("hold", "Hold", "Keep the job out of the order of its queue. The job keeps its age.",
         lambda item: _waits(item) and not _is_held(item)),
    Verb("bump", "Bump", "Move the job to the head of its queue, or as near as its priority can.",
         lambda item: _waits(item) and not _is_held(item)),
    Verb("suspend", "Suspend", "Delete the job's pods and free its charge. The job keeps its age.",
         lambda item: _is_open(item) and not _is_suspended(item), is_grave=True),
    Verb("cancel", "Cancel", "End the job for good, and keep its logs. It cannot be resumed.", _is_open, is_grave=True),
)  # fmt: skip
QUEUE_VERBS = (
    Verb("weight", "Change weight", "Change the part of scarce room that the queue is entitled to.", lambda _: True),
    Verb("pause", "Pause", "Stop admitting jobs from the queue. Jobs that hold room go on.",
         lambda item: _policy(item) == "None"),
    Verb("resume", "Resume", "Admit jobs from the queue again.", lambda item: _policy(item) != "None"),
)  # fmt: skip
VERBS: Mapping[str, Mapping[str, Verb]] = MappingProxyType(
    {JOB: {each.name: each for each in JOB_VERBS}, QUEUE: {each.name: each for each in QUEUE_VERBS}}
)


def change_job(verb: str, item: Manifest, now: datetime) -> Change:
    """Return the change of a job by any verb but bump. Raises Conflict for a job that it makes no sense for."""
    match verb:
        case "resume":
            return job_changes.resume(item, now)
        case "hold":
            return job_changes.hold(item)
        case "suspend":
            job_changes.refuse_finished(item)
            return job_changes.suspend(item)
    return job_changes.cancel(item)


def change_queue(verb: str, name: str, weight: int) -> Change:
    """Return the change of a queue; `weight` is for the verb of that name."""
    match verb:
        case "weight":
            return queue_changes.set_weight(name, weight)
        case "pause":
            return queue_changes.pause(name)
    return queue_changes.resume(name)
