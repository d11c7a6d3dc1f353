"""Whether a Redis server can hold the queues of an installation now.

One rule: the check is a write. A server that answers and takes no writes is of no use to a leader. Only the store of
another installation is not written to.
"""

from queues import errors, installation, redis_keys
from queues.installation import Installation
from queues.redis import connection, server_checks
from queues.redis.connection import Connection
from queues.redis.scripts import Script

_PROBE = Script("store/probe")


def problem(client: Connection, own: Installation | None = None) -> str:
    """Return why the queues of an installation cannot be kept on a client's server; empty if they can. That it does not
    answer is also a reason. None: the caller does not know its installation."""
    try:
        reason = server_checks.problem(connection.facts(client))
        if not reason:
            owner: bytes = _PROBE(client, arguments=[own.encode() if own else ""])
            reason = installation.foreign(owner, own)
    except errors.QueueError as error:
        return str(error)
    return f"Redis at {connection.address(client)} {reason}" if reason else ""


def read_problem(client: Connection, own: Installation | None = None) -> str:
    """Return why the queues of an installation cannot be kept on a client's server, as far as it tells without a write;
    empty if they can. None: the caller does not know its installation. Raises QueueError."""
    facts = connection.facts(client)
    reason = server_checks.problem(facts) or server_checks.refusal(facts)
    reason = reason or (installation.foreign(read_owner(client), own) if own else "")
    return f"Redis at {connection.address(client)} {reason}" if reason else ""


def check_owner(client: Connection, own: Installation | None) -> None:
    """Raise ForeignStore if the store belongs to another installation."""
    reason = installation.foreign(read_owner(client), own)
    if reason:
        raise errors.ForeignStore(f"Redis at {connection.address(client)} {reason}")


def read_owner(client: Connection) -> bytes:
    """Return the owner of the store, as it is stored; empty if it has none."""
    [text] = connection.read_atomically(client, [("GET", redis_keys.OWNER)])
    return text if isinstance(text, bytes) else b""
