"""The guard of the embedded API server's connections: broken HTTP, endless bodies, and clients without the token.

One rule: a client costs little until it has sent the token. A malformed request is answered with a Status object, as
any other wrong request, and is logged at debug level only.
"""

import asyncio
import contextlib
import logging
import socket
import time
from collections.abc import Awaitable, Callable
from typing import Any, cast

import orjson
from aiohttp import web

from crds import excerpts
from embedded.apiserver import status_errors
from embedded.apiserver.http.listener import Connection, Listener
from embedded.apiserver.status_errors import StatusError

_LOG = logging.getLogger(__name__)
_BODY_SECONDS = 60.0
"""The longest time that a body may take to arrive."""
_LONGEST_LINE = 64 * 1024
"""The most bytes of a request's first line, or of one header: a selector may be long."""
_LARGEST_BODY = 3 * 1024 * 1024
_ANONYMOUS_BYTES = 1024 * 1024
"""The most bytes of headers and body that a connection may send before it sends the token."""
_HANG_UP_SECONDS = 1.0
"""The time that `hang_up` waits for the connections to close; the end of the process closes the others."""
_LONGEST_EXCERPT = 200


class ClientConnection(web.RequestHandler):
    """One connection of a client."""

    def __init__(self, *arguments: Any, listener: Listener, connection: Connection, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._listener, self._connection = listener, connection
        self._anonymous_bytes = 0
        self.trusted = False
        """Whether the client has sent the token on this connection."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Register the transport after the TLS handshake."""
        self._connection.transport = cast(asyncio.Transport, transport)
        super().connection_made(transport)

    def connection_lost(self, exc: BaseException | None) -> None:
        """Forget the connection after its end."""
        self._listener.forget(self._connection)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Read more data. Close the connection if it has sent too many bytes without the token."""
        if not self.trusted:
            self._anonymous_bytes += len(data)
            if self._anonymous_bytes > _ANONYMOUS_BYTES:
                self._connection.abort()
                return
        super().data_received(data)

    def trust(self) -> None:
        """Keep the connection: the client has sent the token."""
        if not self.trusted:
            self.trusted = True
            self._listener.trust(self._connection)

    def handle_error(
        self, request: web.BaseRequest, status: int = 500, exc: BaseException | None = None, message: str | None = None
    ) -> web.StreamResponse:
        """Answer data that could not be read as a request."""
        _LOG.debug("a request from %s could not be read: %s", request.remote, exc)
        if request.writer.output_size > 0:
            raise ConnectionError("the answer has begun already")
        excerpt = excerpts.excerpt(excerpts.one_line(message or "the request could not be answered"), _LONGEST_EXCERPT)
        refusal = status_errors.bad_request(excerpt) if status < 500 else status_errors.internal(excerpt)
        response = web.Response(body=orjson.dumps(refusal.status()), status=status, content_type="application/json")
        response.force_close()
        return response


class ConnectionServer(web.Server):
    """An HTTP server that knows its sockets, and hangs up on its clients when the API server stops.

    Data that was sent still arrives; only the wait for the closing message of the client is cut short.
    """

    def __init__(self, handler: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]) -> None:
        lines: dict[str, Any] = {"max_line_size": _LONGEST_LINE, "max_field_size": _LONGEST_LINE}
        super().__init__(handler, request_factory=_request, access_log=None, **lines)
        self._sockets: dict[Any, Any] = {}

    def connection_made(self, handler: Any, transport: asyncio.Transport) -> None:
        """Remember the socket of a new connection."""
        super().connection_made(handler, transport)
        self._sockets[handler] = transport.get_extra_info("socket")

    def connection_lost(self, handler: Any, exc: BaseException | None = None) -> None:
        """Forget the socket of a connection that has ended."""
        super().connection_lost(handler, exc)
        self._sockets.pop(handler, None)

    async def hang_up(self) -> None:
        """Shut down the remaining sockets: an idle client would not answer the TLS close message."""
        sockets = list(self._sockets.values())
        for sock in sockets:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        deadline = time.monotonic() + _HANG_UP_SECONDS
        while any(sock.fileno() >= 0 for sock in sockets) and time.monotonic() < deadline:
            await asyncio.sleep(0.001)

    def answer(self, listener: Listener, connection: Connection) -> ClientConnection:
        """Return the protocol that serves a connection."""
        loop = asyncio.get_running_loop()
        return ClientConnection(self, loop=loop, listener=listener, connection=connection, **self._kwargs)


def trust(request: web.BaseRequest) -> None:
    """Keep the request's connection: the client has sent the token."""
    if isinstance(request.protocol, ClientConnection):
        request.protocol.trust()


def close_if_anonymous(request: web.BaseRequest, response: web.StreamResponse) -> web.StreamResponse:
    """Return the response; the connection closes after it unless the client has sent the token."""
    if isinstance(request.protocol, ClientConnection) and not request.protocol.trusted:
        response.force_close()
    return response


def decoded_path(request: web.BaseRequest) -> str:
    """Return a request's path. Raise StatusError (BadRequest) if the URL has bytes that are not UTF-8."""
    try:
        f"{request.path}?{request.query_string}".encode()
    except UnicodeEncodeError:
        raise status_errors.bad_request("the URL has bytes that are not UTF-8") from None
    return request.path


def header(request: web.BaseRequest, name: str) -> str:
    """Return the text of a header, empty without the header; bytes that are not UTF-8 are replaced."""
    return request.headers.get(name, "").encode(errors="replace").decode()


def _request(message: Any, payload: Any, protocol: Any, writer: Any, task: Any) -> web.BaseRequest:
    loop = asyncio.get_running_loop()
    return web.BaseRequest(message, payload, protocol, writer, task, loop, client_max_size=_LARGEST_BODY)


async def body(request: web.BaseRequest) -> bytes:
    """Return a request's body. Raise StatusError if the body is too large, too slow or broken."""
    try:
        async with asyncio.timeout(_BODY_SECONDS):
            return await request.read()
    except web.HTTPRequestEntityTooLarge:
        message = f"the request is too large: at most {_LARGEST_BODY} bytes"
        raise StatusError(413, "RequestEntityTooLarge", message) from None
    except TimeoutError:
        raise StatusError(504, "Timeout", f"the body did not arrive within {_BODY_SECONDS:.0f} s") from None
    except web.RequestPayloadError as error:
        excerpt = excerpts.excerpt(excerpts.one_line(error), _LONGEST_EXCERPT)
        raise status_errors.bad_request(f"the body could not be read: {excerpt}") from None
