"""A server that resets each connection between connect and TLS handshake, and a search for leaked client sockets.

One rule: the order is fixed. A client loads its certificates before the handshake, and it loads them only after the
reset.
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

from tests.support.waiting import patient

_RESET_ON_CLOSE = struct.pack("ii", 1, 0)


@contextlib.contextmanager
def resetting(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """Run the server and yield its port; clients of this process start their handshake only after the reset."""
    with socket.create_server(("127.0.0.1", 0)) as listener, monkeypatch.context() as patch:
        resets = threading.Semaphore(0)
        load = ssl.SSLContext.load_verify_locations

        def late(context: ssl.SSLContext, *arguments: Any, **options: Any) -> None:
            assert resets.acquire(timeout=patient())
            load(context, *arguments, **options)

        patch.setattr(ssl.SSLContext, "load_verify_locations", late)
        thread = threading.Thread(target=_reset_all, args=(listener, resets), name="resetting-server")
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            listener.shutdown(socket.SHUT_RDWR)  # this wakes the thread
            thread.join()


def _reset_all(listener: socket.socket, resets: threading.Semaphore) -> None:
    with contextlib.suppress(OSError):
        while True:
            connection, _ = listener.accept()
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
            connection.close()
            resets.release()


def open_sockets() -> list[ssl.SSLSocket]:
    """Return the open TLS sockets of this process without a handshake; only the garbage collector would close them."""
    sockets = [found for found in gc.get_objects() if isinstance(found, ssl.SSLSocket)]
    return [found for found in sockets if found.fileno() >= 0 and found.version() is None]
