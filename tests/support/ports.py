"""Ports of this machine, for servers that have to be told where to listen, and for addresses at which nobody answers.

One rule: a port that somebody is told of stays his. A socket holds it that never listens: nobody else is given it, a
connection to it is refused, and a server that asks to reuse addresses, as they all do, may listen there.
"""

import contextlib
import socket
from collections.abc import Iterator


@contextlib.contextmanager
def held() -> Iterator[int]:
    """A port of 127.0.0.1 that is nobody else's until the block ends."""
    with socket.socket() as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind(("127.0.0.1", 0))
        yield int(holder.getsockname()[1])
