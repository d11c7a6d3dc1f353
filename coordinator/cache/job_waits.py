"""The facts in the status of a job about earlier attempts, and about the scheduler of its gang.

One rule: pure. The parsed job is read once, and of its templates only the requested amounts are kept.
"""

from dataclasses import dataclass
from functools import lru_cache

from crds.resources.amounts import Amounts
from crds.torchjob import resource_quota
from crds.torchjob.resource_quota import NamespaceDemand
from crds.torchjob.status import QueueStatus
from crds.torchjob.torchjob import CLOCK_SKEW, TorchJob

USUAL_NAMES = 16
"""The most resource names of a charge that jobs with equal charges share."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaRefusal:
    """A ResourceQuota of the namespace has refused the pods of a job."""

    quota: str
    """The name of the ResourceQuota; empty if the API server named none."""
    hard: tuple[tuple[str, str], ...] = ()
    """The limits that the API server named; a value is empty if it gave no number."""
    outdated: bool = False
    """Whether the spec of the job has changed since the refusal."""
    needs: NamespaceDemand
    """What the job asks of ResourceQuotas."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitState:
    """The state of a job that was admitted before and waits again, or whose scheduler does not bind its gang."""

    queue: str = ""
    """The queue in which it waited when its status was written."""
    until: float = 0.0
    """When its back-off ends, in seconds since 1970."""
    parked: bool = False
    retry: float = 0.0
    """When its owner asked for another try, in seconds since 1970; 0: never. The job need not back off after that."""
    drained: bool = False
    held: Amounts | None = None
    """The charge that it had before its queue was drained; None: not known."""
    dated: bool = False
    """Whether its status has the time at which the wait began."""
    refusal: QuotaRefusal | None = None
    """The refusal that ended its newest attempt."""
    refusals: int = 0
    """How often in a row it gave its room back to wait for its scheduler."""
    sent_back: float = 0.0
    """When it was sent back, in seconds since 1970; 0: it was not, or has been admitted since."""
    refused_since: float = 0.0
    """Since when its scheduler has not bound a gang of it while it holds room, in seconds since 1970; 0: it has."""
    recalled: bool = False
    """Whether its room is taken back because of that."""

    @property
    def waits_for_scheduler(self) -> bool:
        """Whether the job gave its room back to wait for its scheduler, and was not admitted since."""
        return bool(self.refusals and self.sent_back)


def of(job: TorchJob) -> WaitState | None:
    """Return the wait state that the status of a job shows; None if the status shows none."""
    status, refused = job.status.queue, job.status.refused_since
    if status is None and refused is None:
        return None
    status = status or QueueStatus()
    return WaitState(
        queue=status.name,
        until=status.not_before.timestamp() if status.not_before else 0.0,
        parked=status.parked,
        retry=max(job.retry_at.timestamp() - CLOCK_SKEW, 1.0) if job.retry_at else 0.0,
        drained=status.drained,
        held=None if status.held is None else shared_charge(status.held),
        dated=status.since is not None,
        refusal=_refusal(job),
        refusals=status.refusals,
        sent_back=status.since.timestamp() if status.since and status.not_before else 0.0,
        refused_since=refused.timestamp() if refused else 0.0,
        recalled=refused is not None and job.status.recalled == refused,
    )


def _refusal(job: TorchJob) -> QuotaRefusal | None:
    refusal = job.status.queue.refused_by if job.status.queue else None
    if refusal is None or job.is_finished:
        return None
    outdated = refusal.generation != job.metadata.generation
    return QuotaRefusal(
        quota=refusal.name, hard=tuple(refusal.hard.items()), outdated=outdated, needs=resource_quota.of_job(job)
    )


def shared_charge(charge: Amounts) -> Amounts:
    """Return a charge to keep: one shared object for all equal charges, unless a charge has many names.

    A charge with many names is not shared, so that the shared charges do not grow with names that users invent.
    """
    return _shared(tuple(charge.items())) if len(charge) <= USUAL_NAMES else dict(charge)


@lru_cache(4096)
def _shared(charge: tuple[tuple[str, int], ...]) -> Amounts:
    """Return one object for all jobs with equal charges, since every unfinished job keeps its charge."""
    return dict(charge)
