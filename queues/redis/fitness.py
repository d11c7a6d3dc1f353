"""Whether a Redis server can hold the queues of an installation now.

One rule: the check is a write. A server that answers and takes no writes is of no use to a leader. Only the store of
another installation is not written to.
"""

from typing import NamedTuple

from queues import errors, installation, redis_keys
from queues.installation import Installation
from queues.redis import connection, server_checks
from queues.redis.connection import Connection, read_atomically
from queues.redis.scripts import Script

_PROBE = Script("store/probe")


_ADOPT = Script("store/adopt")


def problem(client: Connection, own: Installation | None = None) -> str:
    """Return why the queues of an installation cannot be kept on a client's server; empty if the queues can be kept.
    The lack of an answer is also a reason. None: the caller does not know its installation.
    """
    try:
        reason = server_checks.problem(connection.facts(client))
        if not reason:
            owner: bytes = _PROBE(client, arguments=[own.encode() if own else ""])
            reason = installation.foreign(owner, own)
    except errors.QueueError as error:
        return str(error)
    return f"Redis at {connection.address(client)} {reason}" if reason else ""


def read_problem(client: Connection, own: Installation | None = None) -> str:
    """Return why the queues of an installation cannot be kept on a client's server, as far as the server tells without
    a write; empty if the queues can be kept. None: the caller does not know its installation. Raises QueueError.
    """
    facts = connection.facts(client)
    reason = server_checks.problem(facts) or server_checks.refusal(facts)
    reason = reason or (installation.foreign(read_ownership(client).owner, own) if own else "")
    return f"Redis at {connection.address(client)} {reason}" if reason else ""


def check_owner(client: Connection, own: Installation | None) -> None:
    """Raise ForeignStore if the store belongs to another installation."""
    reason = installation.foreign(read_ownership(client).owner, own)
    if reason:
        raise errors.ForeignStore(f"Redis at {connection.address(client)} {reason}")


class Ownership(NamedTuple):
    """The owner of a store."""

    owner: bytes
    """The installation as it is stored (`queues.installation`); empty if there is none."""
    is_used: bool
    """Whether a process of the owner has written to the store within the last minute."""


def read_ownership(connection: Connection) -> Ownership:
    """Return the owner of the store. Raises QueueError."""
    owner, probe = read_atomically(connection, [("GET", redis_keys.OWNER), ("GET", redis_keys.PROBE)])
    return Ownership(owner if isinstance(owner, bytes) else b"", bool(owner) and owner == probe)


def adopt(connection: Connection, installation: Installation) -> None:
    """Make an installation the owner of the store. The store is lost then, unless it had this owner. Raises
    QueueError."""
    _ADOPT(connection, arguments=[installation.encode()])
