"""How long a stage of an admitted job may take to run, and how long the job may run.

One rule: pure. The time of the job (`activeDeadlineSeconds`) begins with the admission and never stops.

The time of the first stage begins with the admission, that of a later one when the successes it waited for are there;
and that of all of them again when a job that ran is restarted, when one that failed has backed off, and when there is a
ready node again after a time without any. How long a success takes, nobody knows, and nobody asks.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from crds.torchjob import conditions
from crds.torchjob.stages import Stage
from crds.torchjob.torchjob import TorchJob
from reconcilers.plan import progress, status
from reconcilers.views.pod_view import PodView


@dataclass(frozen=True, slots=True)
class Deadline:
    """What time it is, and how many seconds there are; 0: any number."""

    seconds: float
    now: datetime
    pause: float = 0.0
    """Seconds that the job still backs off: none of its time passes meanwhile."""
    ready_again: datetime | None = None
    """When the cluster had a ready node again, if it had none since the job was admitted: nothing could run before."""

    def left(self, job: TorchJob, pods: Iterable[PodView]) -> float | None:
        """Seconds until its pods have to run; None if they need not, or do."""
        due = [each for each in progress.written(job) if _has_to(job, each)] if self.seconds else []
        if not due or status.is_leaving(job.status):  # whoever lets it go on begins its time anew
            return None
        # A pod that is being deleted is none.
        found = progress.of(job, (pod for pod in pods if not pod.deleting))
        late = (each for each in due if not progress.running(job, found, (each,)))
        delays = [each for each in (self._paused(job), self.ready_again) if each is not None]
        began = (max(moment, *delays) if delays else moment for each in late if (moment := _began(job, each)))
        return min((self.seconds - (self.now - each).total_seconds() for each in began), default=None)

    def active(self, job: TorchJob) -> float | None:
        """Seconds until the job's `activeDeadlineSeconds` are over, which count from its admission; None if it has
        none, or is not admitted."""
        since, seconds = job.status.start_time, job.spec.active_deadline_seconds
        if since is None or seconds is None or job.admission is None:
            return None
        return seconds - (self.now - since).total_seconds()

    def ran_out(self, job: TorchJob) -> bool:
        """Whether its `activeDeadlineSeconds` are over."""
        left = self.active(job)
        return left is not None and left <= 0

    def passed(self, job: TorchJob, pods: Iterable[PodView]) -> bool:
        """Whether the time of one of them is over."""
        left = self.left(job, pods)
        return left is not None and left <= 0

    def _paused(self, job: TorchJob) -> datetime | None:
        """When the newest pause is over, or was."""
        if self.pause > 0:
            return self.now + timedelta(seconds=self.pause)
        known = job.status.restart_not_before
        return known if known is not None and known <= self.now else None


def _has_to(job: TorchJob, stage: Stage) -> bool:
    """Whether nobody has seen a stage run, since the job's last restart."""
    known = job.status.stages.get(str(stage.index))
    ran = known is None or known.running is not None
    return job.status.phase == "Admitted" or (job.status.phase == "Running" and not ran)


def _began(job: TorchJob, stage: Stage) -> datetime | None:
    """When a stage began to hold room without running; None if nobody knows."""
    known = job.status.stages.get(str(stage.index))
    first = job.admission.admitted_at if job.admission else None
    began = known.began if known is not None else first
    ran = conditions.find(job.status.conditions, "Running")
    if began is not None and ran is not None and ran.status == "False":
        return max(began, ran.last_transition_time)
    return began
