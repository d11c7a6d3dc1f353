"""The facts that the coordinator needs about a job whose number of workers it may change.

One rule: pure. Other jobs have no such value, so that they cost no memory for it.
"""

from dataclasses import dataclass
from typing import Literal

from coordinator.cache import pod_grace
from crds.torchjob.memory_growth import MEMORY
from crds.torchjob.status import Scaling, Target
from crds.torchjob.tasks import WORKER
from crds.torchjob.torchjob import TorchJob

Change = Literal["", "Resizing", "Restarting"]
"""What is under way: nothing, a change of the number of workers, or a restart of pods."""
Obstacle = Literal["", "Ending", "PodsMissing"]
"""Nothing; a worker has succeeded; or pods find no node, or no room for more memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Autoscaling:
    """The state of one job for the decision about its number of workers."""

    on: bool
    """Whether the owner lets the coordinator change the number, and workers can be removed: those of a critical task
    cannot. It may be off while the job still has idle growth."""
    most: int
    """The most workers that the job may have."""
    every: float
    """The least number of seconds between two changes, apart from giving back."""
    least_gain: int = 0
    """The loss in samples per second and worker, in percent, above which added workers are removed again; 0: any."""
    idle: int = 0
    """The granted workers that the queue has not paid for."""
    target: Target | None = None
    void: bool = False
    """Whether the target is not in force; a worker removes it."""
    resized_at: float = 0.0
    """When the last change ended, in seconds since 1970; 0: never."""
    growth_seconds: float = 0.0
    """How long the last growth took until all added workers ran; 0 if the last change was no growth."""
    change: Change = ""
    leaving: int = 0
    """The granted workers that are on their way out."""
    removed: tuple[str, ...] = ()
    """The names of the workers that are being removed."""
    obstacle: Obstacle = ""
    """What keeps the job from growing, as its status says."""
    restarts_at: float = 0.0
    """The end of a pause before a restart, in seconds since 1970; 0: there is none."""
    restarts: int = 0
    """How often pods of the job were restarted, for whatever reason."""
    exit_seconds: float = 0.0
    """How long a worker may take to save and to end."""

    @property
    def in_force(self) -> Target | None:
        """The target, unless it is void."""
        return None if self.void else self.target

    @property
    def victims(self) -> tuple[str, ...]:
        """The names of the workers that leave before others: those that are being removed, then those that have to."""
        return (*self.removed, *(self.target.victims if self.target is not None and not self.void else ()))


def of(job: TorchJob) -> Autoscaling | None:
    """Return the state of a job; None if the coordinator never changes its number of workers."""
    policy, status, admission = job.spec.torch_elastic_policy, job.status, job.status.admission
    idle = admission.idle if admission is not None else 0
    if policy is None or not job.spec.worker_count:
        return None
    if policy.autoscale == "Off" and not idle and status.target is None:
        return None
    granted = admission.workers or 0 if admission is not None else 0
    leaving = _leaving(status.scaling, granted)
    return Autoscaling(
        on=policy.autoscale == "Idle" and not job.spec.torch_task_specs[WORKER].critical,
        most=policy.num_max_replicas or job.spec.worker_count,
        every=float(policy.resize_every_seconds),
        least_gain=policy.min_gain_percent,
        idle=idle,
        target=status.target,
        void=status.target is not None and job.target is None,
        resized_at=status.resized.at.timestamp() if status.resized is not None else 0.0,
        growth_seconds=float(status.resized.seconds) if status.resized is not None else 0.0,
        change=_change(job, leaving),
        leaving=leaving,
        removed=status.victims,
        obstacle=_obstacle(job),
        restarts_at=status.restart_not_before.timestamp() if status.restart_not_before is not None else 0.0,
        restarts=status.restart_count + status.disruptions,
        exit_seconds=float(job.spec.scheduling_policy.checkpoint_seconds + pod_grace.longest(job)),
    )


def _leaving(scaling: Scaling | None, granted: int) -> int:
    """Return how many granted workers are being removed, or save before their removal."""
    if scaling is None:
        return 0
    return max(len(scaling.victims), granted - scaling.to, 0)


def _obstacle(job: TorchJob) -> Obstacle:
    counts = job.status.task_statuses.get(WORKER)
    if counts is not None and counts.succeeded:
        return "Ending"
    return "PodsMissing" if job.status.departed or _waits_for_memory(job) else ""


def _waits_for_memory(job: TorchJob) -> bool:
    """Return whether the memory of a job's pods has grown beyond the memory in the job's charge."""
    admission = job.status.admission
    if admission is None or not job.grown_memory:
        return False
    needed = job.charge_of(admission.workers or job.spec.worker_count)
    return needed.get(MEMORY, 0) > admission.charge.get(MEMORY, 0)


def _change(job: TorchJob, leaving: int) -> Change:
    """Return the change that is under way. A request for workers that only waits in its queue is not."""
    scaling = job.status.scaling
    if leaving or (scaling is not None and scaling.deadline is not None):
        return "Resizing"
    return "Restarting" if job.status.replacing else ""
