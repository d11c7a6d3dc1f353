"""The errors of the queues.

One rule: no error of the Redis library leaves this package.

    QueueError
    ├── BadAddress         the Redis URL cannot be used; the message says why
    ├── StoreUnreachable   Redis does not answer; the message names the URL without its secrets
    │   ├── CredentialsRefused  Redis answers, but does not know this user or does not allow it the command
    │   └── NotWritable    Redis answers, but takes no writes now; the message says why, and what an admin can do
    ├── Unreadable         Redis holds data that no torchq wrote; the message names `torchq doctor`
    ├── ForeignStore       Redis holds the queues of another installation
    ├── StoreLost          Redis answers but has no epoch: the content is lost, and only a rebuild helps
    └── StaleEpoch         another process rebuilt under a higher epoch: this process leads no longer
    Unstorable             (no QueueError) one value cannot be stored exactly; the others can
"""


class Unstorable(ValueError):
    """An entry or a reservation that the store cannot keep exactly. The store and all other values are fine."""


class QueueError(Exception):
    """The queue store refused a request or failed."""


class BadAddress(QueueError):
    """The Redis URL cannot be used."""


class StoreUnreachable(QueueError):
    """Redis does not answer."""


class CredentialsRefused(StoreUnreachable):
    """Redis does not know this user, or does not allow it the command."""


class NotWritable(StoreUnreachable):
    """Redis takes no writes: it is a replica, full, a part of a Redis Cluster, or protects itself from a loss."""


class Unreadable(QueueError):
    """Redis holds data that cannot be read; `torchq doctor --fix` repairs the data."""


class ForeignStore(QueueError):
    """Redis holds the queues of another installation, and this installation does not write to it."""


class StoreLost(QueueError):
    """The queue store is empty; the leader rebuilds it from the cluster."""


class StaleEpoch(QueueError):
    """Another coordinator has taken over."""
