"""The request that changes the size of a job now, as the change of the size sees it.

One rule: pure, over the observation. A request counts from the write of its size until it is over.
"""

from dataclasses import dataclass

from crds.torchjob import grant
from crds.torchjob.tasks import WORKER
from crds.torchjob.torchjob import TorchJob
from reconcilers.values import Observation
from reconcilers.views.scale_request_view import RequestView

ROLLED_BACK = ("TimedOut", "Deleted", "JobSuspended")
"""The reasons for which a ScaleOut that has begun is rolled back."""


@dataclass(frozen=True, slots=True)
class UnderWay:
    """The request that changes the size of a job now."""

    label: str
    """The request, for `status.scaling.request` of the job."""
    to: int
    """The number of workers that the request wants."""
    victims: tuple[str, ...] = ()
    """The workers that are removed before others."""
    exact: bool = False
    """Whether all of these victims are removed, even if the job would not lose as many."""
    added: tuple[str, ...] = ()
    """The workers that were granted because of the request."""


def under_way(observation: Observation) -> UnderWay | None:
    """Return the request that changes the size of the job now; None if there is no such request."""
    request = next((request for request in observation.requests if request.has_begun), None)
    if request is None or not isinstance(observation.job, TorchJob):
        return None
    status = request.status
    if is_rolling_back(request):
        added = added_workers(request, observation.job)
        return UnderWay(f"rollback of {request.label}", status.from_workers or 0, added)
    if request.adds:
        return UnderWay(request.label, status.to or 0, added=added_workers(request, observation.job))
    # Once the workers have been named as victims, others may get their names.
    names = request.names or () if status.phase == "Admitted" else ()
    return UnderWay(request.label, status.to or 0, names, exact=bool(names))


def is_rolling_back(request: RequestView) -> bool:
    """Return whether a request that has begun is being undone."""
    return request.has_begun and request.status.reason in ROLLED_BACK


def added_workers(request: RequestView, job: TorchJob) -> tuple[str, ...]:
    """Return the names of the workers that the job has been granted since a request began; none if it had no workers
    then."""
    if job.admission is None or request.status.indexes is None:
        return ()
    before = frozenset(grant.parse_indexes(request.status.indexes))
    granted = grant.indexes(job.admission, job.spec.worker_count)
    return tuple(job.pod_name(WORKER, index) for index in granted if index not in before)
