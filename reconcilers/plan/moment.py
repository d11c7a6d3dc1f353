"""The inputs of a plan: one observation, the settings and the time, and the values that follow from these alone.

One rule: pure. A value that several steps of a plan use is computed once, when the first step uses it.

The time of a job (`activeDeadlineSeconds`) begins with the admission and never stops. The time that the first stage may
take to run begins with the admission, and the time of a later stage with the successes for which the stage waited.
There is no limit for the time until a success. The time of all stages begins again after each of these events:

- a running job is restarted;
- a failed job has backed off;
- the cluster gets a ready node after a time without a ready node.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property

from crds.torchjob import conditions
from crds.torchjob.stages import Stage
from crds.torchjob.torchjob import TorchJob
from reconcilers.plan import backoff, gangs, progress, status
from reconcilers.plan.pod_deletion import PodDeletion
from reconcilers.pods.grants import Grant
from reconcilers.settings import ReconcileSettings
from reconcilers.values import Action, NoRoom, Observation
from reconcilers.views.pod_view import PodView


@dataclass(frozen=True, slots=True)
class Deadline:
    """The current time, and the seconds that a stage may take; 0 means without limit."""

    seconds: float
    now: datetime
    pause: float = 0.0
    """The seconds that the job still backs off, during which no time passes for it."""
    ready_again: datetime | None = None
    """When the cluster got a ready node again; None if it had one all the time since the job's admission. Nothing could
    run before."""

    def remaining(self, job: TorchJob, pods: Iterable[PodView]) -> float | None:
        """Return the seconds until the job's pods have to run; None if they need not run yet, or run already."""
        due = [stage for stage in progress.begun_stages(job) if must_run(job, stage)] if self.seconds else []
        if not due or status.is_leaving(job.status):  # if it goes on, its time begins again
            return None
        # A pod that is being deleted is not counted.
        job_progress = progress.assess(job, (pod for pod in pods if not pod.deleting))
        late = (stage for stage in due if not progress.all_running(job, job_progress, (stage,)))
        delays = [delay for delay in (self._pause_end(job), self.ready_again) if delay is not None]
        starts = (max(moment, *delays) if delays else moment for stage in late if (moment := began(job, stage)))
        return min((self.seconds - (self.now - start).total_seconds() for start in starts), default=None)

    def active_remaining(self, job: TorchJob) -> float | None:
        """Return the seconds until the job's `activeDeadlineSeconds`, counted from its admission, are over. The result
        is None if the job has no such deadline or is not admitted.
        """
        since, seconds = job.status.start_time, job.spec.active_deadline_seconds
        if since is None or seconds is None or job.admission is None:
            return None
        return seconds - (self.now - since).total_seconds()

    def is_active_over(self, job: TorchJob) -> bool:
        """Return whether the job's `activeDeadlineSeconds` are over."""
        remaining = self.active_remaining(job)
        return remaining is not None and remaining <= 0

    def has_passed(self, job: TorchJob, pods: Iterable[PodView]) -> bool:
        """Return whether a stage has exceeded its time."""
        remaining = self.remaining(job, pods)
        return remaining is not None and remaining <= 0

    def _pause_end(self, job: TorchJob) -> datetime | None:
        """Return when the current or last pause ends or ended."""
        if self.pause > 0:
            return self.now + timedelta(seconds=self.pause)
        not_before = job.status.restart_not_before
        return not_before if not_before is not None and not_before <= self.now else None


def must_run(job: TorchJob, stage: Stage) -> bool:
    """Return whether a stage has not run yet since the job's last restart."""
    stage_status = job.status.stages.get(str(stage.index))
    ran = stage_status is None or stage_status.running is not None
    return job.status.phase == "Admitted" or (job.status.phase == "Running" and not ran)


def began(job: TorchJob, stage: Stage) -> datetime | None:
    """Return when a stage began to hold resources without running; None if that is unknown."""
    stage_status = job.status.stages.get(str(stage.index))
    first = job.admission.admitted_at if job.admission else None
    start = stage_status.began if stage_status is not None else first
    ran = conditions.find(job.status.conditions, "Running")
    if start is not None and ran is not None and ran.status == "False":
        return max(start, ran.last_transition_time)
    return start


@dataclass(frozen=True)
class Moment:
    """One job at one moment, as a plan sees it."""

    observation: Observation
    settings: ReconcileSettings
    now: datetime

    @cached_property
    def reason(self) -> str:
        """The reason of the condition Admitted while the condition is True; else empty."""
        return "" if self.observation.job is None else status.admission_reason(self.observation.job.status)

    @cached_property
    def grant(self) -> Grant | None:
        """The job under its written admission; None if the job has no admission."""
        job = self.observation.job
        return Grant(job, job.admission) if isinstance(job, TorchJob) and job.admission is not None else None

    @cached_property
    def deletion(self) -> PodDeletion:
        """How pods are deleted now."""
        grace, dead = self.settings.dead_node_grace, self.observation.dead_nodes
        deletion = PodDeletion(self.now.timestamp(), grace, dead, self.settings.longest_grace)
        is_uncharged = self.observation.met(NoRoom) is not None or self.reason == status.EXCEEDS
        return deletion.for_uncharged() if is_uncharged else deletion

    @cached_property
    def deadline(self) -> Deadline:
        """The time that the stages of the job may take, and the job."""
        job, ready = self.observation.job, self.observation.ready_again
        return Deadline(
            self.settings.admission_timeout if self.settings.make_pods else 0.0,
            self.now,
            backoff.remaining_pause(job.status, self.settings, self.now) if isinstance(job, TorchJob) else 0.0,
            None if ready is None else datetime.fromtimestamp(ready, UTC),
        )

    @property
    def group_deletions(self) -> tuple[Action, ...]:
        """The deletion of all groups of the job."""
        return gangs.delete_groups(self.observation.groups)
