"""Ports of this machine, for servers that need a port number, and for addresses at which no server answers.

One rule: a port stays reserved for its test. A bound socket that never listens reserves the port: the kernel gives the
port to no other process and refuses connections to it. A server that sets SO_REUSEADDR, as all servers of the tests do,
may listen at this port.
"""

import contextlib
import socket
from collections.abc import Iterator


@contextlib.contextmanager
def reserve() -> Iterator[int]:
    """Yield a port of 127.0.0.1 that is reserved until the block ends."""
    with socket.socket() as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind(("127.0.0.1", 0))
        yield int(holder.getsockname()[1])
