"""Whether a job waits in its queue, and since when, from one sight of it.

One rule: the time is one that the object has, wherever it has one, so that each recorder makes the same row.

A sight tells one point in time: from then on the job waited (`end` is None), or from then on it did not (`end` is
`start`). A wait ends at the next point of the job, or at the end of the job.

    the job                              waits    since
    is new                               yes      creationTimestamp
    is new, and suspended or on hold     no       creationTimestamp
    is Queued                            yes      the condition Queued, or a back-off or retry that came later
    is on hold                           no       the condition Queued if it was on hold then, else this sight
    was on hold, and is no more          yes      the annotation `retry-at` of `torchq job resume`, else this sight
    backs off, or is parked              no       the condition Queued
    holds room                           no       status.admission.admittedAt
    is Suspended                         no       the condition Suspended

A job that cannot be picked for another reason (its queue does not exist, a ResourceQuota has no room) does wait.

A job that is first seen when it holds room waited since its creation, unless somebody may have held or suspended it.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from crds import labels
from crds.torchjob.conditions import FINISHED
from history.sightings.untrusted import items, mapping, moment

HELD = "Held"
"""The reason of the condition Queued, and in `status.queue`, of a job on hold."""


class WaitPoint(NamedTuple):
    """From when on a job waits, or does not."""

    at: int
    waits: bool


def find(job: Mapping[str, Any], seen: int) -> WaitPoint | None:
    """Return what a job shows about its wait; None if it shows no time of it."""
    spec, status = mapping(job.get("spec")), mapping(job.get("status"))
    admission = status.get("admission")
    if admission:
        return _point(moment(mapping(admission).get("admittedAt")), waits=False)
    is_held = mapping(spec.get("schedulingPolicy")).get("hold") is True
    match status.get("phase") or "":
        case "":
            created = moment(mapping(job.get("metadata")).get("creationTimestamp"))
            return _point(created, waits=not (is_held or spec.get("suspend") is True))
        case "Suspended":
            return _point(transition(status, "Suspended"), waits=False)
        case phase if phase in FINISHED:
            return None
    since = transition(status, "Queued")
    if since is None:
        return None
    was_held = condition(status, "Queued").get("reason") == HELD
    if is_held:
        return WaitPoint(since if was_held else max(seen, since), False)
    return _queued(job, since, seen, was_held=was_held)


def _queued(job: Mapping[str, Any], since: int, seen: int, *, was_held: bool) -> WaitPoint | None:
    """Return since when a job waits that is Queued and not on hold."""
    queue = mapping(mapping(job.get("status")).get("queue"))
    annotations = mapping(mapping(job.get("metadata")).get("annotations"))
    retried, delay = moment(annotations.get(labels.RETRY_AT)), moment(queue.get("notBefore"))
    if retried is not None and since < retried <= seen:
        return WaitPoint(retried, True)
    if queue.get("parked") is True or (delay is not None and delay > seen):
        return WaitPoint(since, False)
    if queue.get("reason") == HELD:  # the coordinator has not written yet that it is on hold no more
        return WaitPoint(max(seen, since), True)
    if was_held:
        return None
    return WaitPoint(max(since, delay or 0), True)


def has_waited_since_creation(job: Mapping[str, Any]) -> bool:
    """Return whether a job that holds room for the first time waited from its creation to its admission: nobody has
    changed its spec, which has neither a hold nor a suspension."""
    spec, admission = mapping(job.get("spec")), mapping(mapping(job.get("status")).get("admission"))
    is_stopped = spec.get("suspend") is True or mapping(spec.get("schedulingPolicy")).get("hold") is True
    is_unchanged = mapping(job.get("metadata")).get("generation") == 1
    return admission.get("attempt") == 1 and is_unchanged and not is_stopped


def transition(status: Mapping[str, Any], type: str) -> int | None:
    """Return when a condition changed last; None if that is not known."""
    return moment(condition(status, type).get("lastTransitionTime"))


def condition(status: Mapping[str, Any], type: str) -> Mapping[str, Any]:
    """Return the condition of a type; empty if there is none."""
    return next((mapping(each) for each in items(status.get("conditions")) if mapping(each).get("type") == type), {})


def _point(at: int | None, *, waits: bool) -> WaitPoint | None:
    return None if at is None else WaitPoint(at, waits)
