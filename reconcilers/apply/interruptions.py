"""The exceptions that end a plan before it is completed.

One rule: each carries what the next observation of the job has to include.
"""

from kube import errors
from reconcilers.errors import NameTaken
from reconcilers.plan import over_quota
from reconcilers.values import NoRoom, OverQuota


class ObserveAgain(Exception):
    """The plan is outdated, or too long for one reconcile."""

    def __init__(self, after: float) -> None:
        super().__init__(after)
        self.after = after


class KeyLost(Exception):
    """Another worker has the key."""


class PodRefused(Exception):
    """The API server refuses a pod because its manifest is not valid."""


class SizeRefused(Exception):
    """The API server refuses a number of workers."""


class QuotaRefused(Exception):
    """A ResourceQuota has no room for an object of the job."""

    def __init__(self, by: OverQuota) -> None:
        super().__init__(by)
        self.by = by


class ChargeRefused(Exception):
    """The job cannot be charged for what its pods request."""

    def __init__(self, by: NoRoom, *, for_memory: bool = False) -> None:
        super().__init__(by)
        self.by = by
        self.for_memory = for_memory


class Blocked(Exception):
    """An object of the job cannot be created now."""

    def __init__(self, reason: str, error: errors.ClusterError | NameTaken, message: str = "") -> None:
        super().__init__(message or str(error))
        self.reason = reason
        self.error = error


def classify_refusal(error: errors.Forbidden, reason: str) -> Blocked | QuotaRefused:
    """Return the exception for a refusal: because of a ResourceQuota, or for a reason that the owner has to resolve."""
    quota = over_quota.parse_refusal(str(error))
    return Blocked(reason, error) if quota is None else QuotaRefused(quota)
