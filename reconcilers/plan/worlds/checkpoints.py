"""The request to save before workers of a running job are removed, which interrupts the training of all others, or
before its containers are restarted with little grace (`reconcilers.plan.in_place.graces`).

One rule: pure. A request is an annotation of the job, with a number that follows from the status alone; whoever can
save answers with the same number in another annotation, or a pod of the job in a report. Without an answer, the removal
or the restart goes on after `schedulingPolicy.checkpointSeconds`.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta

from crds import integers, labels
from crds.torchjob.status import Saving
from crds.torchjob.torchjob import TorchJob
from reconcilers.values import Action, AnnotateJob


@dataclass(frozen=True, slots=True)
class SaveRequest:
    """A request to save that is not answered yet, or that there is none."""

    actions: tuple[Action, ...] = ()
    """The action that makes the request; none if it is made already."""
    remaining: float | None = None
    """The seconds for which the answer is waited for; None if nothing waits."""


def begin(job: TorchJob, purpose: str, now: datetime) -> Saving | None:
    """Return the request to save before a restart that the status has to record; None if one is open already. It counts
    for every restart that is planned meanwhile."""
    saving, limit = job.status.saving, timedelta(seconds=job.spec.scheduling_policy.checkpoint_seconds)
    if saving is not None and (saving.request == purpose or now < saving.since + limit):
        return None
    return Saving(request=purpose, since=now)


def pending(job: TorchJob, since: datetime, now: datetime, reported: int = 0) -> SaveRequest:
    """Return the request to save that the status has recorded at a time; `reported` is the number of the latest request
    that a report answers."""
    number, notes = int(since.timestamp()), job.metadata.annotations
    limit = timedelta(seconds=job.spec.scheduling_policy.checkpoint_seconds)
    remaining = (since + limit - now).total_seconds()
    if remaining <= 0 or max(reported, integers.parse(notes.get(labels.CHECKPOINT_COMPLETED), 0)) >= number:
        return SaveRequest()
    if notes.get(labels.CHECKPOINT_REQUESTED) == str(number):
        return SaveRequest((), remaining)
    return SaveRequest((AnnotateJob({labels.CHECKPOINT_REQUESTED: str(number)}),), remaining)
