"""The request to save before workers of a running job are removed, which interrupts the training of all others.

One rule: pure. A request is an annotation of the job, with a number that follows from the status alone; whoever can
save answers with the same number in another annotation, or a pod of the job in a report. Without an answer, the removal
goes on after `schedulingPolicy.checkpointSeconds`.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta

from crds import integers, labels
from crds.torchjob.status import Scaling
from crds.torchjob.torchjob import TorchJob
from reconcilers.values import Action, AnnotateJob


@dataclass(frozen=True, slots=True)
class SaveRequest:
    """A request to save that is not answered yet, or that there is none."""

    actions: tuple[Action, ...] = ()
    """The action that makes the request; none if it is made already."""
    remaining: float | None = None
    """The seconds for which the removal waits for the answer; None if it need not wait."""


def pending(job: TorchJob, scaling: Scaling, now: datetime, reported: int = 0) -> SaveRequest:
    """Return the request to save for a removal that was recorded in the status; `reported` is the number of the latest
    request that a report answers."""
    number, notes = int(scaling.since.timestamp()), job.metadata.annotations
    limit = timedelta(seconds=job.spec.scheduling_policy.checkpoint_seconds)
    remaining = (scaling.since + limit - now).total_seconds()
    if remaining <= 0 or max(reported, integers.parse(notes.get(labels.CHECKPOINT_COMPLETED), 0)) >= number:
        return SaveRequest()
    if notes.get(labels.CHECKPOINT_REQUESTED) == str(number):
        return SaveRequest((), remaining)
    return SaveRequest((AnnotateJob({labels.CHECKPOINT_REQUESTED: str(number)}),), remaining)
