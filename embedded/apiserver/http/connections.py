"""The API server's connections, so that it can hang up on its clients when it stops.

One rule: what was sent still arrives; only the waiting for the other side's goodbye is cut short.
"""

import asyncio
import contextlib
import socket
import time
from typing import Any

from aiohttp import web

_SECONDS = 1.0
"""A connection that is not closed by then is left to the end of the process."""


class Connections(web.Server):
    """aiohttp's server, which knows its sockets."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._sockets: dict[Any, Any] = {}

    def connection_made(self, handler: Any, transport: asyncio.Transport) -> None:
        """Somebody called."""
        super().connection_made(handler, transport)
        self._sockets[handler] = transport.get_extra_info("socket")

    def connection_lost(self, handler: Any, exc: BaseException | None = None) -> None:
        """Somebody is gone."""
        super().connection_lost(handler, exc)
        self._sockets.pop(handler, None)

    async def hang_up(self) -> None:
        """Cut what is still connected: an idle client never answers TLS's goodbye, which would be waited for."""
        left = list(self._sockets.values())
        for each in left:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        deadline = time.monotonic() + _SECONDS
        while any(each.fileno() >= 0 for each in left) and time.monotonic() < deadline:
            await asyncio.sleep(0.001)
