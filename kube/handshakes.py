"""Closes sockets that a failed TLS handshake would leave open.

One rule: only a socket that has not finished its handshake is closed, and only by the caller that caught its error.
"""

import ssl
import traceback


def close_lost(error: BaseException) -> None:
    """Close every unfinished TLS socket in the tracebacks of an error and of its causes.

    `ssl.SSLSocket` takes over a connection's descriptor before it checks whether the peer is still connected. If the
    peer has reset the connection at that time (a server killed with connections in its backlog), the constructor raises
    and the new socket stays open. The caller's own socket no longer holds the descriptor, which therefore lives as long
    as the traceback (python/cpython#113280). HTTP and Redis libraries read their certificates between the two steps, so
    the gap is milliseconds long.
    """
    visited: set[int] = set()
    below: BaseException | None = error
    while below is not None and id(below) not in visited:
        visited.add(id(below))
        for frame, _ in traceback.walk_tb(below.__traceback__):
            candidate = frame.f_locals.get("self")
            if isinstance(candidate, ssl.SSLSocket) and candidate.version() is None:
                candidate.close()
        below = below.__cause__ or below.__context__
