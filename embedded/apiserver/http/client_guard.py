"""Who calls the embedded API server: what is no HTTP, what never ends, and who never says who he is.

One rule: a caller costs little until he has shown the token; what he does wrong is answered like any other mistake,
with a Status object, and is no news for the log.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, cast

import orjson
from aiohttp import web

from crds import excerpts
from embedded.apiserver import status_errors
from embedded.apiserver.http.connections import Connections
from embedded.apiserver.http.listener import Connection, Listener
from embedded.apiserver.status_errors import Refusal

_LOG = logging.getLogger(__name__)
_BODY_SECONDS = 60.0
"""How long a body may take to come."""
_LONGEST_LINE = 64 * 1024
"""Bytes of a request's first line, or of one header: a selector may be long."""
_LARGEST_BODY = 3 * 1024 * 1024
_ANONYMOUS_BYTES = 1024 * 1024
"""What is read of a connection before it shows the token: headers, and what of a body comes with them."""
_SHOWN = 200


class Caller(web.RequestHandler):
    """One connection."""

    def __init__(self, *arguments: Any, listener: Listener, connection: Connection, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._listener, self._connection = listener, connection
        self._anonymous_bytes = 0
        self.trusted = False
        """Whether the token was shown on it."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The TLS handshake is done."""
        self._connection.transport = cast(asyncio.Transport, transport)
        super().connection_made(transport)

    def connection_lost(self, exc: BaseException | None) -> None:
        """The connection has ended."""
        self._listener.closed(self._connection)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Read on, unless there is too much of it without a token."""
        if not self.trusted:
            self._anonymous_bytes += len(data)
            if self._anonymous_bytes > _ANONYMOUS_BYTES:
                self._connection.abort()
                return
        super().data_received(data)

    def trust(self) -> None:
        """The token was shown: the connection stays."""
        if not self.trusted:
            self.trusted = True
            self._listener.trust(self._connection)

    def handle_error(
        self, request: web.BaseRequest, status: int = 500, exc: BaseException | None = None, message: str | None = None
    ) -> web.StreamResponse:
        """Answer what could not be read as a request."""
        _LOG.debug("a request from %s could not be read: %s", request.remote, exc)
        if request.writer.output_size > 0:
            raise ConnectionError("the answer has begun already")
        said = excerpts.excerpt(excerpts.one_line(message or "the request could not be answered"), _SHOWN)
        refusal = status_errors.bad_request(said) if status < 500 else status_errors.internal(said)
        response = web.Response(body=orjson.dumps(refusal.status()), status=status, content_type="application/json")
        response.force_close()
        return response


class Callers(Connections):
    """Takes the calls."""

    def __init__(self, handler: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]) -> None:
        lines: dict[str, Any] = {"max_line_size": _LONGEST_LINE, "max_field_size": _LONGEST_LINE}
        super().__init__(handler, request_factory=_request, access_log=None, **lines)

    def answer(self, listener: Listener, connection: Connection) -> Caller:
        """What serves a connection."""
        loop = asyncio.get_running_loop()
        return Caller(self, loop=loop, listener=listener, connection=connection, **self._kwargs)


def trust(request: web.BaseRequest) -> None:
    """The token was shown: the caller may stay."""
    if isinstance(request.protocol, Caller):
        request.protocol.trust()


def ended(request: web.BaseRequest, response: web.StreamResponse) -> web.StreamResponse:
    """The response, after which the connection is closed unless the token was shown on it."""
    if isinstance(request.protocol, Caller) and not request.protocol.trusted:
        response.force_close()
    return response


def readable(request: web.BaseRequest) -> str:
    """A request's path. BadRequest where the URL has bytes that are no UTF-8."""
    try:
        f"{request.path}?{request.query_string}".encode()
    except UnicodeEncodeError:
        raise status_errors.bad_request("the URL has bytes that are not UTF-8") from None
    return request.path


def header(request: web.BaseRequest, name: str) -> str:
    """The text of a header, empty without one; bytes that are no UTF-8 are replaced."""
    return request.headers.get(name, "").encode(errors="replace").decode()


def _request(message: Any, payload: Any, protocol: Any, writer: Any, task: Any) -> web.BaseRequest:
    loop = asyncio.get_running_loop()
    return web.BaseRequest(message, payload, protocol, writer, task, loop, client_max_size=_LARGEST_BODY)


async def body(request: web.BaseRequest) -> bytes:
    """A request's body. Refused if it is too large, too slow or broken."""
    try:
        async with asyncio.timeout(_BODY_SECONDS):
            return await request.read()
    except web.HTTPRequestEntityTooLarge:
        message = f"the request is too large: at most {_LARGEST_BODY} bytes"
        raise Refusal(413, "RequestEntityTooLarge", message) from None
    except TimeoutError:
        raise Refusal(504, "Timeout", f"the body did not come within {_BODY_SECONDS:.0f} s") from None
    except web.RequestPayloadError as error:
        said = excerpts.excerpt(excerpts.one_line(error), _SHOWN)
        raise status_errors.bad_request(f"the body could not be read: {said}") from None
