"""What ends a plan that is being carried out, before it is done.

One rule: each says what the next look at the job has to know.
"""

from kube import errors
from reconcilers.errors import NameTaken
from reconcilers.plan import over_quota
from reconcilers.values import NoRoom, OverQuota


class ObserveAgain(Exception):
    """The plan is outdated or too long for one go."""

    def __init__(self, after: float) -> None:
        super().__init__(after)
        self.after = after


class Lost(Exception):
    """Another worker has the key."""


class Refused(Exception):
    """The API server does not take a pod as it is."""


class QuotaRefused(Exception):
    """A ResourceQuota does not hold an object of the job."""

    def __init__(self, by: OverQuota) -> None:
        super().__init__(by)
        self.by = by


class ChargeRefused(Exception):
    """The job cannot be charged for what its pods ask for."""

    def __init__(self, by: NoRoom) -> None:
        super().__init__(by)
        self.by = by


class Hindered(Exception):
    """Something may not be made now."""

    def __init__(self, reason: str, error: errors.ClusterError | NameTaken, message: str = "") -> None:
        super().__init__(message or str(error))
        self.reason = reason
        self.error = error


def forbidden(error: errors.Forbidden, reason: str) -> Hindered | QuotaRefused:
    """What a refusal is: for a ResourceQuota, or for anything else, for which the owner is told the reason."""
    found = over_quota.read(str(error))
    return Hindered(reason, error) if found is None else QuotaRefused(found)
