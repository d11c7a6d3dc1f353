"""The request to save before workers of a running job are removed, which interrupts the training of all others, before
its containers are restarted with little grace (`reconcilers.plan.in_place.graces`), or before all of its pods are
deleted because it is suspended or drained.

One rule: pure. A request is an annotation of the job, with a number that follows from the status alone; whoever can
save answers with the same number in another annotation, or a pod of the job in a report. Without an answer, the removal
or the restart goes on after `schedulingPolicy.checkpointSeconds`.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from crds import integers, labels
from crds.torchjob.jobspec import DEFAULT_GRACE
from crds.torchjob.status import Saving, TorchJobStatus
from crds.torchjob.torchjob import TorchJob
from reconcilers.values import Action, AnnotateJob
from reconcilers.views.pod_view import PodView

LEAVING = ("Suspending", "Draining")
"""The causes for which all pods of a job are deleted on purpose, once it has saved."""


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


def must_save(job: TorchJob, pods: Iterable[PodView]) -> bool:
    """Return whether a job is asked to save before all of its pods are deleted on purpose: its owner wants that, and
    none of them has ended or is about to."""
    if not job.spec.scheduling_policy.checkpoint_seconds or job.status.phase != "Running":
        return False
    present = tuple(pods)
    return any(pod.running for pod in present) and not any(pod.deleting or pod.finished for pod in present)


def longest_save(job: TorchJob, pods: Iterable[PodView], longest_grace: float) -> float:
    """Return the seconds for which a job may save before its pods are deleted: together with their grace they are no
    more than `longest_grace`."""
    grace = max((DEFAULT_GRACE if pod.grace is None else pod.grace for pod in pods), default=0)
    return min(job.spec.scheduling_policy.checkpoint_seconds, max(0.0, longest_grace - grace))


def forget_leaving(status: TorchJobStatus) -> TorchJobStatus:
    """Return the status of a job that goes on: it saves no more for the deletion of its pods."""
    if status.saving is None or not status.saving.request.startswith(LEAVING):
        return status
    return status.model_copy(update={"saving": None})


def pending(
    job: TorchJob, since: datetime, now: datetime, reported: int = 0, limit: float | None = None
) -> SaveRequest:
    """Return the request to save that the status has recorded at a time.

    `reported` is the number of the latest request that a report answers. `limit` is the number of seconds for which the
    answer is waited for, where that is not `checkpointSeconds`.
    """
    number, notes = int(since.timestamp()), job.metadata.annotations
    seconds = job.spec.scheduling_policy.checkpoint_seconds if limit is None else limit
    remaining = (since + timedelta(seconds=seconds) - now).total_seconds()
    if remaining <= 0 or max(reported, integers.parse(notes.get(labels.CHECKPOINT_COMPLETED), 0)) >= number:
        return SaveRequest()
    if notes.get(labels.CHECKPOINT_REQUESTED) == str(number):
        return SaveRequest((), remaining)
    return SaveRequest((AnnotateJob({labels.CHECKPOINT_REQUESTED: str(number)}),), remaining)
