"""The owner of a queue store, for an admin who moves an installation.

One rule: a store that changes its owner is lost, and its new owner rebuilds it from the cluster.
"""

from typing import NamedTuple

from queues import redis_keys
from queues.installation import Installation
from queues.redis.connection import Connection, read_atomically
from queues.redis.scripts import Script

_ADOPT = Script("store/adopt")


class Ownership(NamedTuple):
    """Whose a store is."""

    owner: bytes
    """The installation as it is stored (`queues.installation`); empty if there is none."""
    is_used: bool
    """Whether a process of the owner has written to the store within the last minute."""


def read(connection: Connection) -> Ownership:
    """Return whose the store is. Raises QueueError."""
    owner, probe = read_atomically(connection, [("GET", redis_keys.OWNER), ("GET", redis_keys.PROBE)])
    return Ownership(owner if isinstance(owner, bytes) else b"", bool(owner) and owner == probe)


def adopt(connection: Connection, installation: Installation) -> None:
    """Make an installation the owner of the store. The store is lost then, unless it had this owner. Raises
    QueueError."""
    _ADOPT(connection, arguments=[installation.encode()])
