"""The connections of browsers: how many there are, for how long one may be without a request, and what is no request.

One rule: who only holds connections open takes none of them from others for long.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Any

from aiohttp import web

from coordinator.dashboard import protection

MOST_CONNECTIONS = 2000
SILENT_SECONDS = 20.0
"""How long a client may take to send the first request of a connection."""
IDLE_SECONDS = 30.0
"""How long a connection without a request stays open."""
LINE_BYTES, FIELD_BYTES = 8 * 1024, 32 * 1024
"""The longest address and the longest header: browsers send the cookies of all ports of this machine."""
MOST_CHUNKS = 4
NO_REQUEST = "the request cannot be read: it is no HTTP, or an address or a header of it is too long"
_QUIET = logging.Logger("dashboard-requests", logging.CRITICAL + 1)
"""Takes what aiohttp says of requests that are no HTTP: it repeats their headers."""
_OPTIONS: Mapping[str, Any] = MappingProxyType(
    {
        "access_log": None,
        "logger": _QUIET,
        "keepalive_timeout": IDLE_SECONDS,
        "lingering_time": 1.0,
        "max_line_size": LINE_BYTES,
        "max_field_size": FIELD_BYTES,
    }
)


class _Connection(web.RequestHandler):
    """The connection of a browser."""

    __slots__ = ()

    def handle_error(
        self, request: web.BaseRequest, status: int = 500, exc: BaseException | None = None, message: str | None = None
    ) -> web.StreamResponse:
        """Answer what is no request. The answer of aiohttp would repeat what came, such as a cookie."""
        answer = super().handle_error(request, status, exc, NO_REQUEST if message else None)
        answer.headers.update(protection.HEADERS)
        return answer


class ConnectionOutlet:
    """The way to a reader whose answer has no end; see `coordinator.dashboard.streams.Outlet`.

    The answer's head is sent already, and nothing else writes to the connection meanwhile. So a message goes to it at
    once, as a chunk if the answer is chunked.
    """

    __slots__ = ("_is_chunked", "_transport")

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
        """Send a text, without waiting. A connection that is closed drops the text."""
        if self._transport is not None:
            self._transport.write(_chunk(text) if self._is_chunked else text)

    def abort(self) -> None:
        """Close the connection. What the reader has not taken yet is dropped."""
        if self._transport is not None:
            self._transport.abort()


@lru_cache(MOST_CHUNKS)
def _chunk(text: bytes) -> bytes:
    """Return a text as a chunk of an answer: one object for all readers who get the same."""
    return b"%x\r\n%b\r\n" % (len(text), text)


class _Refused(asyncio.Protocol):
    """Closes a connection that is one too many."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.close()


class Connections:
    """The connections of one server, on one event loop."""

    def __init__(self) -> None:
        self._silent: set[Any] = set()
        """The protocols of connections that have sent no request yet."""

    def of(self, server: web.Server) -> Callable[[], Any]:
        """Return what makes the protocol of each connection of a server."""
        loop = asyncio.get_running_loop()

        def made() -> Any:
            if len(server.connections) >= MOST_CONNECTIONS:
                return _Refused()
            protocol = _Connection(server, loop=loop, **_OPTIONS)
            self._silent.add(protocol)
            loop.call_later(SILENT_SECONDS, self._close_silent, protocol)
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
