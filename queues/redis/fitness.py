"""Whether a Redis server can hold the queues now.

One rule: the check is a write. A server that answers and takes no writes is of no use to a leader.
"""

from queues import errors
from queues.redis import connection, server_checks
from queues.redis.connection import Connection
from queues.redis.scripts import Script

_PROBE = Script("store/probe")


def problem(client: Connection) -> str:
    """Return why the queues cannot be kept on a client's server; empty if they can. That it does not answer is also a
    reason."""
    try:
        reason = server_checks.problem(connection.facts(client))
        if reason:
            return f"Redis at {connection.address(client)} {reason}"
        _PROBE(client)
    except errors.QueueError as error:
        return str(error)
    return ""
