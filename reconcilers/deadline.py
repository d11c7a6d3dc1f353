"""How long an admitted job may take to run.

One rule: pure. Its time begins with the admission, and again when a job that ran has to be restarted. Tasks that start
after a success of others are given what time they need: the room is theirs, and nobody knows how long a success takes.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from crds import conditions
from crds.torchjob import TorchJob
from reconcilers import status, tasks
from reconcilers.pod_view import PodView


@dataclass(frozen=True, slots=True)
class Deadline:
    """What time it is, and how many seconds there are; 0: any number."""

    seconds: float
    now: datetime

    def left(self, job: TorchJob, pods: Iterable[PodView]) -> float | None:
        """Seconds until its pods have to run; None if they need not, or do."""
        began = _began(job)
        if not self.seconds or began is None or not _starts(job, pods):
            return None
        return self.seconds - (self.now - began).total_seconds()

    def passed(self, job: TorchJob, pods: Iterable[PodView]) -> bool:
        """Whether its time is over."""
        left = self.left(job, pods)
        return left is not None and left <= 0


def _began(job: TorchJob) -> datetime | None:
    """When it began to hold room without running; None if it does not, or nobody knows."""
    admitted = job.admission.admitted_at if job.admission else None
    if admitted is None or job.status.phase != "Admitted":
        return None
    ran = conditions.find(job.status.conditions, "Running")
    if ran is not None and ran.status == "False":
        return max(admitted, ran.last_transition_time)
    return None if job.status.restart_count and _staged(job) else admitted


def _starts(job: TorchJob, pods: Iterable[PodView]) -> bool:
    """Whether a task that may run has not got its minimum of pods yet; one that is being deleted is none."""
    counts = status.count(job, (pod for pod in pods if not pod.deleting))
    members = {each: tasks.counted(job.spec, counts, each) for each in job.spec.tasks}
    if _staged(job) and any(each.done for each in members.values()):
        return False
    return any(not each.enough for task, each in members.items() if tasks.unlocked(job.spec, counts, task))


def _staged(job: TorchJob) -> bool:
    return any(each.phase == "Succeeded" for task in job.spec.tasks.values() for each in task.depends_on)
