"""The connections of browsers: how many there are, and for how long one may be without a request.

One rule: who only holds connections open takes none of them from others for long.
"""

import asyncio
from collections.abc import Callable
from typing import Any

MOST_CONNECTIONS = 2000
SILENT_SECONDS = 20.0
"""How long a client may take to send the first request of a connection."""


class ConnectionOutlet:
    """The way to a reader whose answer has no end; see `coordinator.dashboard.streams.Outlet`.

    The answer's head is sent already, and nothing else writes to the connection meanwhile. So a message goes to it at
    once, as a chunk if the answer is chunked.
    """

    def __init__(self, transport: asyncio.Transport | None, *, is_chunked: bool) -> None:
        """`transport` is the connection; None if it was lost already."""
        self._transport, self._is_chunked = transport, is_chunked

    def is_open(self) -> bool:
        """Return whether the reader is there."""
        return self._transport is not None and not self._transport.is_closing()

    def is_free(self) -> bool:
        """Return whether the reader has taken all that was sent."""
        return self._transport is None or not self._transport.get_write_buffer_size()

    def send(self, text: bytes) -> None:
        """Send a text, without waiting."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(b"%x\r\n%b\r\n" % (len(text), text) if self._is_chunked else text)

    def abort(self) -> None:
        """Close the connection. What the reader has not taken yet is dropped."""
        if self._transport is not None:
            self._transport.abort()


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
