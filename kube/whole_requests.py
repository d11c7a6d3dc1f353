"""Connections of the HTTP library that send a request in one piece.

One rule: nothing but the number of writes differs. The library sends head and body one after the other, each in a TLS
record of its own: the server wakes up for the head, and again for the body.
"""

from typing import Any

import urllib3
from urllib3 import connection


class _InOnePiece(connection.HTTPConnection):
    """Keeps what is to be sent until the request is complete."""

    _kept: list[bytes] | None = None

    def request(self, *arguments: Any, **options: Any) -> None:
        """Send a request."""
        kept: list[bytes] = []
        self._kept = kept
        try:
            super().request(*arguments, **options)
        finally:
            self._kept = None
        super().send(b"".join(kept))

    def send(self, data: Any) -> None:
        """Send bytes now, or with the request that is being written."""
        if self._kept is None:
            super().send(data)
        else:
            self._kept.append(data)


class _SecureInOnePiece(_InOnePiece, connection.HTTPSConnection):
    """The same over TLS."""


class _Plain(urllib3.HTTPConnectionPool):
    ConnectionCls = _InOnePiece


class _Secure(urllib3.HTTPSConnectionPool):
    ConnectionCls = _SecureInOnePiece


_OURS = {urllib3.HTTPConnectionPool: _Plain, urllib3.HTTPSConnectionPool: _Secure}


def use(pool: urllib3.PoolManager) -> None:
    """Have the pool make such connections from now on; those through SOCKS stay as they are."""
    known = pool.pool_classes_by_scheme
    pool.pool_classes_by_scheme = {scheme: _OURS.get(found, found) for scheme, found in known.items()}
