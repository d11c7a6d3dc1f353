"""The connections of browsers: how many there are, and for how long one may be without a request.

One rule: who only holds connections open takes none of them from others for long.
"""

import asyncio
from collections.abc import Callable
from typing import Any

MOST_CONNECTIONS = 2000
SILENT_SECONDS = 20.0
"""How long a client may take to send the first request of a connection."""


class _Refused(asyncio.Protocol):
    """Closes a connection that is one too many."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.close()


class Connections:
    """The connections of one server, on one event loop."""

    def __init__(self) -> None:
        self._silent: set[Any] = set()
        """The protocols of connections that have sent no request yet."""

    def limited(self, make: Callable[[], Any], count: Callable[[], int]) -> Callable[[], Any]:
        """Return what makes the protocol of each connection; `make` does so for connections that are answered, of which
        there are `count`."""

        def made() -> Any:
            if count() >= MOST_CONNECTIONS:
                return _Refused()
            protocol = make()
            self._silent.add(protocol)
            asyncio.get_running_loop().call_later(SILENT_SECONDS, self._close_silent, protocol)
            return protocol

        return made

    def note_request(self, protocol: Any) -> None:
        """Note that a connection has sent a request."""
        self._silent.discard(protocol)

    def _close_silent(self, protocol: Any) -> None:
        if protocol in self._silent:
            self._silent.discard(protocol)
            if protocol.transport is not None:
                protocol.transport.abort()
