"""The numbers of workers of a job that may run with fewer workers than it requests, or that may be resized.

One rule: pure. Other jobs have no such value, so that they cost no memory for it. Equal amounts are shared objects.
"""

from dataclasses import dataclass

from coordinator.cache import autoscaling, job_waits
from coordinator.cache.autoscaling import Autoscaling
from crds.resources.amounts import Amounts
from crds.torchjob import demand
from crds.torchjob.status import Scaling
from crds.torchjob.torchjob import TorchJob


@dataclass(frozen=True, slots=True)
class WantedGrowth:
    """The request of an admitted job for more workers."""

    to: int
    """The number of workers that it wants."""
    since: float
    """The time of the request, in seconds since 1970."""
    not_before: float = 0.0
    """The time until which no workers are added, in seconds since 1970."""
    whole: bool = False
    """Whether all of these workers are added, or none."""


@dataclass(frozen=True, slots=True)
class WorkerCounts:
    """The numbers of workers of one job, and the amounts that they take."""

    least: int
    """The least number with which the job is admitted."""
    wanted: int
    """The number that the job requests."""
    step: int
    least_charge: Amounts
    """The charge of the job with the least number."""
    share: Amounts
    """What one further worker adds to the charge."""
    growth: WantedGrowth | None = None
    """None while the job is not admitted, has all the workers that it wants, or gives workers back."""
    autoscaling: Autoscaling | None = None
    """None if the coordinator never changes the number by itself."""

    def contains(self, workers: int) -> bool:
        """Return whether the job can be admitted with a number of workers."""
        return self.least <= workers <= self.wanted and (workers - self.least) % self.step == 0


def of(job: TorchJob) -> WorkerCounts | None:
    """Return the numbers of workers of a job; None if the job is admitted with all of its workers and never resized."""
    scope, policy, wanted = job.spec.worker_range, job.spec.torch_elastic_policy, job.spec.worker_count
    if scope is None and (policy is None or not wanted):
        return None
    return WorkerCounts(
        least=scope.least if scope is not None else wanted,
        wanted=wanted,
        step=scope.step if scope is not None else policy.replica_step if policy is not None else 1,
        least_charge=job_waits.shared_charge(job.least_charge),
        share=job_waits.shared_charge(job.worker_share),
        growth=_growth(job.status.scaling, job),
        autoscaling=autoscaling.of(job),
    )


def _growth(scaling: Scaling | None, job: TorchJob) -> WantedGrowth | None:
    """Return the growth that the owner wants and that waits in the queue. Workers that the coordinator adds above the
    owner's number do not wait in a queue."""
    granted = job.status.admission.workers if job.status.admission is not None else None
    if scaling is None or granted is None or scaling.victims:
        return None
    to, target = scaling.to, job.target
    if target is not None:
        to = min(to, job.spec.worker_count) if target.workers >= granted else 0
    if to <= granted:
        return None
    return WantedGrowth(
        to=to,
        since=scaling.since.timestamp(),
        not_before=scaling.not_before.timestamp() if scaling.not_before else 0.0,
        whole=scaling.is_all_or_none,
    )


def beyond_gangs(job: TorchJob) -> Amounts:
    """Return the requests of the members without which the job's gangs may begin (`minMembers`)."""
    return demand.beyond_gangs(job.spec, job.shares) if job.larger_requests else job.spec.beyond_gangs
