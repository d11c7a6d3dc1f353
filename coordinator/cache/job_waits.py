"""How a job waits that was sent back, as its status says.

One rule: pure; the parsed job is read once, and nothing of its templates is kept but what it asks for.
"""

from dataclasses import dataclass
from functools import lru_cache

from crds.resources.amounts import Amounts
from crds.torchjob import resource_quota
from crds.torchjob.resource_quota import Needs
from crds.torchjob.torchjob import CLOCK_SKEW, TorchJob

USUAL_NAMES = 16
"""Names of a charge that is shared by jobs that ask for the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """A ResourceQuota of its namespace has refused a job."""

    quota: str
    """Empty if the API server named none."""
    hard: tuple[tuple[str, str], ...] = ()
    """The limits that it named; an empty value where it gave no number."""
    outdated: bool = False
    """Whether the job's spec has changed since."""
    needs: Needs
    """What the job asks of ResourceQuotas."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Waits:
    """How a job waits that was sent back."""

    queue: str = ""
    """Where it waited when that was written."""
    until: float = 0.0
    """It backs off until then, in seconds since 1970."""
    parked: bool = False
    retry: float = 0.0
    """From then on it need not wait any more, because another try was asked for, in seconds since 1970; 0: it was not.
    """
    drained: bool = False
    held: Amounts | None = None
    """What it held before it was sent back so that it comes first; None: that is not known."""
    dated: bool = False
    """Whether its status says since when it waits."""
    refusal: Refusal | None = None
    """The ResourceQuota that refused its newest try."""


def of(job: TorchJob) -> Waits | None:
    """What its status says; None if it says nothing."""
    told = job.status.queue
    if told is None:
        return None
    return Waits(
        queue=told.name,
        until=told.not_before.timestamp() if told.not_before else 0.0,
        parked=told.parked,
        retry=max(job.retry_at.timestamp() - CLOCK_SKEW, 1.0) if job.retry_at else 0.0,
        drained=told.drained,
        held=None if told.held is None else kept(told.held),
        dated=told.since is not None,
        refusal=_refusal(job),
    )


def _refusal(job: TorchJob) -> Refusal | None:
    told = job.status.queue.refused_by if job.status.queue else None
    if told is None or job.finished:
        return None
    outdated = told.generation != job.metadata.generation
    return Refusal(quota=told.name, hard=tuple(told.hard.items()), outdated=outdated, needs=resource_quota.of_job(job))


def kept(charge: Amounts) -> Amounts:
    """Of usual charges those that are equal are one. A charge of many names goes with its job: what is remembered does
    not grow with the names that jobs make up."""
    return _shared(tuple(charge.items())) if len(charge) <= USUAL_NAMES else dict(charge)


@lru_cache(4096)
def _shared(charge: tuple[tuple[str, int], ...]) -> Amounts:
    """Jobs that ask for the same have one charge: it is kept for every unfinished job."""
    return dict(charge)
