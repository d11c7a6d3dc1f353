"""The request to save before workers of a running job are removed, which interrupts the training of all others, before
its containers are restarted with little grace, or before all of its pods are
deleted because it is suspended or drained.

One rule: pure. A request is an annotation of the job, with a number that follows from the status alone; whoever can
save answers with the same number in another annotation, or a pod of the job in a report. Without an answer, the removal
or the restart continues after `schedulingPolicy.checkpointSeconds`.

A node gives containers that an agent restarts two seconds to end. After a failure the other pods have lost their
work since the last checkpoint, so they are restarted at once. A planned restart takes nothing from them that a
new pod would have left:

    schedulingPolicy.checkpointSeconds   the job is asked to save first, and restarted in place then
    else a grace in the template         new pods, which end the old ones with their grace
    neither                              restarted in place at once
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


SECONDS = 2
"""The grace that a kubelet gives in a restart of all containers of a pod, whatever the pod says."""


@dataclass(frozen=True, slots=True)
class SaveRequest:
    """A request to save that is not answered yet, or the fact that there is no such request."""

    actions: tuple[Action, ...] = ()
    """The action that makes the request; none if it is made already."""
    remaining: float | None = None
    """The seconds for which the answer is waited for; None if nothing waits."""


def begin(job: TorchJob, purpose: str, now: datetime) -> Saving | None:
    """Return the request to save before a restart that the status has to record; None if a request is open already. The
    answer counts for every restart that is planned while the request is open.
    """
    saving, limit = job.status.saving, timedelta(seconds=job.spec.scheduling_policy.checkpoint_seconds)
    if saving is not None and (saving.request == purpose or now < saving.since + limit):
        return None
    return Saving(request=purpose, since=now)


def must_save(job: TorchJob, pods: Iterable[PodView]) -> bool:
    """Return whether a job is asked to save before all of its pods are deleted on purpose: this is the case if
    its owner wants it and no pod has ended or is about to end."""
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
    """Return the status of a job that continues: the request to save before the deletion of its pods is removed."""
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


def must_save_in_place(job: TorchJob, pods: Iterable[PodView]) -> bool:
    """Return whether the job is asked to save before some pods are restarted in place."""
    if not job.spec.scheduling_policy.checkpoint_seconds or job.status.phase != "Running":
        return False
    return any(pod.has_restart_agent and pod.running for pod in pods)


def must_replace(job: TorchJob, pods: Iterable[PodView]) -> bool:
    """Return whether a planned restart of some pods replaces them, so that they keep their grace."""
    return not job.spec.scheduling_policy.checkpoint_seconds and have_grace(job, pods)


def have_grace(job: TorchJob, pods: Iterable[PodView]) -> bool:
    """Return whether an agent would restart any of the pods with a shorter grace than its template sets."""
    tasks = {name.lower(): task for name, task in job.spec.torch_task_specs.items()}
    templates = (tasks[pod.task].template["spec"] for pod in pods if pod.has_restart_agent and pod.task in tasks)
    return any((spec.get("terminationGracePeriodSeconds") or 0) > SECONDS for spec in templates)


def keep_graces(job: TorchJob, after: TorchJobStatus, in_place: Iterable[PodView]) -> TorchJobStatus:
    """Return the status after a restart of the whole job that torchq itself has planned at once: its pods are replaced
    where they have a grace. `in_place` are the pods that could be restarted in place."""
    is_whole = after.restart_generation > job.status.restart_generation
    if not is_whole or not have_grace(job, in_place):
        return after
    return after.model_copy(update={"recreate_generation": after.restart_generation})
