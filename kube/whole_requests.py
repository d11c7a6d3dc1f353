"""Connections of the HTTP library that send a request in one write.

One rule: only the number of writes differs. The library sends the head and the body in two writes, each in a TLS record
of its own: the server wakes up once for the head, and again for the body.
"""

from typing import Any

import urllib3
from urllib3 import connection


class _WholeRequestConnection(connection.HTTPConnection):
    """A connection that buffers the bytes of a request until the request is complete."""

    _buffer: list[bytes] | None = None

    def request(self, *arguments: Any, **options: Any) -> None:
        """Send a request."""
        buffer: list[bytes] = []
        self._buffer = buffer
        try:
            super().request(*arguments, **options)
        finally:
            self._buffer = None
        super().send(b"".join(buffer))

    def send(self, data: Any) -> None:
        """Send bytes at once, or buffer them while a request is being written."""
        if self._buffer is None:
            super().send(data)
        else:
            self._buffer.append(data)


class _SecureWholeRequestConnection(_WholeRequestConnection, connection.HTTPSConnection):
    """The same connection over TLS."""


class _HttpPool(urllib3.HTTPConnectionPool):
    ConnectionCls = _WholeRequestConnection


class _HttpsPool(urllib3.HTTPSConnectionPool):
    ConnectionCls = _SecureWholeRequestConnection


_POOL_CLASSES = {urllib3.HTTPConnectionPool: _HttpPool, urllib3.HTTPSConnectionPool: _HttpsPool}


def use(pool: urllib3.PoolManager) -> None:
    """Let the pool make connections that send a request in one write. Connections through SOCKS do not change."""
    classes = pool.pool_classes_by_scheme
    pool.pool_classes_by_scheme = {
        scheme: _POOL_CLASSES.get(pool_class, pool_class) for scheme, pool_class in classes.items()
    }
