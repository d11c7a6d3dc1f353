"""Closes the sockets that are lost on their way into TLS.

One rule: only a socket that has not finished its handshake is closed, and only by whoever its error has reached.
"""

import ssl
import traceback


def close_lost(error: BaseException) -> None:
    """Close every TLS socket that failed to be made, somewhere on the way of this error and of those it came from.

    `ssl.SSLSocket` takes a connection's descriptor over before it looks whether the peer is still there. Reset by
    then, as by a server killed with connections in its backlog, it raises and stays open, known to nobody: the socket
    its caller closes is an empty one, and the descriptor lives as long as the traceback (python/cpython#113280). HTTP
    and Redis libraries read their certificates just there, which makes the moment milliseconds long.
    """
    seen: set[int] = set()
    below: BaseException | None = error
    while below is not None and id(below) not in seen:
        seen.add(id(below))
        for frame, _ in traceback.walk_tb(below.__traceback__):
            found = frame.f_locals.get("self")
            if isinstance(found, ssl.SSLSocket) and found.version() is None:
                found.close()
        below = below.__cause__ or below.__context__
