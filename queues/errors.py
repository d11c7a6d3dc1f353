"""What can go wrong in the queue room.

One rule: an error of the Redis library does not pass this room's door.

    QueueError
    ├── BadAddress         the Redis URL cannot be used; says why
    ├── StoreUnreachable   Redis does not answer; names the URL without its secrets
    │   └── CredentialsRefused  it answers, and does not know this account or lets it not do this
    ├── Unreadable         Redis holds what no torchq wrote; names `torchq doctor`
    ├── StoreLost          Redis answers but knows no epoch: the content is gone, only a rebuild helps
    └── StaleEpoch         somebody rebuilt under a higher epoch: this process leads no longer
    Unstorable             (no QueueError) one value is too large to be kept; the others are kept without it
"""


class Unstorable(ValueError):
    """An entry or a reservation that the store cannot keep exactly: nothing is wrong with the store or the others."""


class QueueError(Exception):
    """The queue store refused or failed."""


class BadAddress(QueueError):
    """The Redis URL cannot be used."""


class StoreUnreachable(QueueError):
    """Redis does not answer."""


class CredentialsRefused(StoreUnreachable):
    """Redis does not know this account, or lets it not do what was asked."""


class Unreadable(QueueError):
    """Redis holds something that cannot be read; `torchq doctor --fix` mends it."""


class StoreLost(QueueError):
    """The queue store is empty; the leader rebuilds it from the cluster."""


class StaleEpoch(QueueError):
    """Another coordinator has taken over."""
