"""Who calls the embedded API server: what is no HTTP, what never ends, and who never says who he is.

One rule: a caller costs little until he has shown the token; what he does wrong is answered like any other mistake,
with a Status object, and is no news for the log.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import orjson
from aiohttp import web

from cluster.local import refusals
from cluster.local.connections import Connections
from cluster.local.refusals import Refusal

_LOG = logging.getLogger(__name__)
_PATIENCE_SECONDS = 30.0
"""How long a caller may stay without the token."""
_BODY_SECONDS = 60.0
"""How long a body may take to come."""
_LONGEST_LINE = 64 * 1024
"""Bytes of a request's first line, or of one header: a selector may be long."""
_LARGEST_BODY = 3 * 1024 * 1024
_SHOWN = 200


class Caller(web.RequestHandler):
    """One connection."""

    trusted = False
    """Whether the token was shown on it."""

    def handle_error(
        self, request: web.BaseRequest, status: int = 500, exc: BaseException | None = None, message: str | None = None
    ) -> web.StreamResponse:
        """Answer what could not be read as a request."""
        _LOG.debug("a request from %s could not be read: %s", request.remote, exc)
        if request.writer.output_size > 0:
            raise ConnectionError("the answer has begun already")
        said = " ".join((message or "the request could not be answered").split())[:_SHOWN]
        refusal = refusals.bad_request(said) if status < 500 else refusals.internal(said)
        response = web.Response(body=orjson.dumps(refusal.status()), status=status, content_type="application/json")
        response.force_close()
        return response

    def give_up(self) -> None:
        """Hang up, unless the token was shown."""
        if not self.trusted and self.transport is not None:
            self.transport.abort()


class Callers(Connections):
    """Takes the calls."""

    def __init__(self, handler: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]) -> None:
        lines: dict[str, Any] = {"max_line_size": _LONGEST_LINE, "max_field_size": _LONGEST_LINE}
        super().__init__(handler, request_factory=_request, access_log=None, **lines)

    def __call__(self) -> Caller:
        """The next one."""
        loop = asyncio.get_running_loop()
        made = Caller(self, loop=loop, **self._kwargs)
        loop.call_later(_PATIENCE_SECONDS, made.give_up)
        return made


def trust(request: web.BaseRequest) -> None:
    """The token was shown: the caller may stay."""
    if isinstance(request.protocol, Caller):
        request.protocol.trusted = True


def readable(request: web.BaseRequest) -> str:
    """A request's path. BadRequest where the URL has bytes that are no UTF-8."""
    try:
        f"{request.path}?{request.query_string}".encode()
    except UnicodeEncodeError:
        raise refusals.bad_request("the URL has bytes that are not UTF-8") from None
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
        raise refusals.bad_request(f"the body could not be read: {' '.join(str(error).split())[:_SHOWN]}") from None
