"""A server that resets each connection after it is made and before TLS begins, and what a client leaves open then.

One rule: nothing is left to chance: certificates are read, which is between the two, once the connection is reset.
"""

import contextlib
import gc
import socket
import ssl
import struct
import threading
from collections.abc import Iterator
from typing import Any

import pytest

_DEADLINE_SECONDS = 20.0
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)


@contextlib.contextmanager
def resetting(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """The port of one; clients of this process come to their handshake late."""
    with socket.create_server(("127.0.0.1", 0)) as listener, monkeypatch.context() as patch:
        gone = threading.Semaphore(0)
        load = ssl.SSLContext.load_verify_locations

        def late(context: ssl.SSLContext, *given: Any, **named: Any) -> None:
            assert gone.acquire(timeout=_DEADLINE_SECONDS)
            load(context, *given, **named)

        patch.setattr(ssl.SSLContext, "load_verify_locations", late)
        thread = threading.Thread(target=_reset_all, args=(listener, gone), name="resetting-server")
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            listener.shutdown(socket.SHUT_RDWR)  # wakes the thread
            thread.join()


def _reset_all(listener: socket.socket, gone: threading.Semaphore) -> None:
    with contextlib.suppress(OSError):
        while True:
            connection, _ = listener.accept()
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
            connection.close()
            gone.release()


def left_open() -> list[ssl.SSLSocket]:
    """The open TLS sockets of this process that have no TLS: nobody reads or closes one but the garbage collector."""
    sockets = [found for found in gc.get_objects() if isinstance(found, ssl.SSLSocket)]
    return [found for found in sockets if found.fileno() >= 0 and found.version() is None]
