"""The exceptions that end a plan before it is completed.

One rule: each carries what the next observation of the job has to include.
"""

from crds.api_resources import Resource
from kube import errors
from reconcilers.errors import NameTaken
from reconcilers.plan import over_quota
from reconcilers.plan.status import NOT_CREATED
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

    def __init__(
        self, reason: str, error: errors.ClusterError | NameTaken, message: str = "", *, passing: bool = False
    ) -> None:
        super().__init__(message or str(error))
        self.reason = reason
        self.error = error
        self.passing = passing


def classify_refusal(error: errors.Forbidden, reason: str) -> Blocked | QuotaRefused:
    """Return the exception for a refusal: because of a ResourceQuota, or for a reason that the owner has to resolve."""
    quota = over_quota.parse_refusal(str(error))
    return Blocked(reason, error) if quota is None else QuotaRefused(quota)


FAILURES = (errors.Unreachable, errors.TooManyRequests, errors.ServerError)
"""The errors of a create that may succeed later: nothing is wrong with the object or with the account's rights."""


def not_created(resource: Resource, name: str, error: errors.ClusterError) -> Blocked:
    """Return the exception for one of FAILURES."""
    kind = resource.kind
    return Blocked(f"{kind}{NOT_CREATED}", error, f"{kind} {name}: {error}", passing=True)
