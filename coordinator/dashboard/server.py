"""The server of the dashboard: pages, and one stream of changes for each page that is open.

One rule: this is the only module that uses aiohttp. The event loop waits for nothing but clients: what asks servers,
or draws, runs in threads.
"""

import asyncio
import hashlib
import logging
import secrets
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from importlib.resources import files
from typing import Any, TypeVar
from urllib.parse import parse_qsl, urlsplit

import orjson
from aiohttp import web

from coordinator.dashboard import changes, drawing, protection, routes
from coordinator.dashboard.asked import Asked
from coordinator.dashboard.elements import DrawnPage, Page
from coordinator.dashboard.readings import EVERY_SECONDS, Readings
from coordinator.dashboard.visitors import OneVisitor, Visitor, Visitors
from coordinator.http.listening_ports import is_for_address
from coordinator.query.questions import UnknownObject
from kube import errors

THREADS = 8
HEARTBEAT_SECONDS = 10.0
"""How often a stream without changes says that it lives."""
BODY_BYTES = 512 * 1024
"""The largest body of a request: the versions of all elements of a page."""
STATIC = {"dashboard.css": "text/css", "dashboard.js": "text/javascript", "icon.svg": "image/svg+xml"}
LINKS = (("/", "Queues"), ("/jobs", "Jobs"), ("/usage", "Usage"))
T = TypeVar("T")
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Frame:
    """What is the same on all pages."""

    cluster: str
    address: str
    """The address to listen on."""
    visitors: Visitors
    readings: Readings


class DashboardServer:
    """Answers browsers."""

    def __init__(self, frame: Frame) -> None:
        self._frame = frame
        self._threads = ThreadPoolExecutor(THREADS, "dashboard")
        self._stopping = asyncio.Event()
        package = files("coordinator.dashboard") / "static"
        self._static = {name: (package / name).read_bytes() for name in STATIC}
        # The address of a file differs if the file does, so browsers may keep it for ever.
        self._release = hashlib.blake2s(b"".join(self._static.values()), digest_size=6).hexdigest()

    def application(self) -> web.Application:
        """Return the application with all its paths."""
        app = web.Application(middlewares=[self._guard], client_max_size=BODY_BYTES)
        app.router.add_get("/static/{version}/{name}", self._file)
        app.router.add_get("/open", self._open)
        app.router.add_post("/stream", self._stream)
        app.router.add_get("/{path:.*}", self._page)
        app.on_shutdown.append(self._end_streams)
        return app

    async def _end_streams(self, _app: web.Application) -> None:
        self._stopping.set()

    @web.middleware
    async def _guard(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        if not is_for_address(request.headers.get("Host", ""), self._frame.address):
            answer: web.StreamResponse = self._refusal(
                403, "the Host header names another host: open the printed address"
            )
        elif request.method == "POST" and not protection.is_own_origin(request.headers):
            answer = self._refusal(403, "the request comes from a page of another site")
        else:
            try:
                answer = await handler(request)
            except web.HTTPException as error:
                answer = self._refusal(error.status, error.reason)
        if not answer.prepared:
            answer.headers.update({**protection.HEADERS, **answer.headers})
        return answer

    def _refusal(self, code: int, text: str, visitor: Visitor | None = None) -> web.Response:
        page = Page("refusal", "Not shown", {"problems": ()}, {"text": text, "code": code})
        return self._html(page, drawing.draw(page), "", visitor, code)

    def _html(
        self, page: Page, drawn: DrawnPage, address: str, visitor: Visitor | None, code: int = 200
    ) -> web.Response:
        frame = {
            "address": address,
            "secret": visitor.secret if visitor else "",
            "visitor": visitor.name if visitor else "",
            "cluster": self._frame.cluster,
            "links": LINKS if visitor else (),
            "release": self._release,
        }
        return web.Response(text=drawing.document(page, drawn, frame), status=code, content_type="text/html")

    async def _file(self, request: web.Request) -> web.Response:
        name = request.match_info["name"]
        if name not in self._static:
            raise web.HTTPNotFound(reason="there is no such file")
        headers = {"Cache-Control": protection.STATIC_CACHE}
        return web.Response(body=self._static[name], content_type=STATIC[name], charset="utf-8", headers=headers)

    async def _open(self, request: web.Request) -> web.Response:
        visitors = self._frame.visitors
        value = visitors.open(request.query.get("code", "")) if isinstance(visitors, OneVisitor) else None
        if value is None or not isinstance(visitors, OneVisitor):
            return self._refusal(403, "this address was opened already, or is wrong: run torchq dashboard again")
        answer = web.Response(status=303, headers={"Location": "/"})
        answer.set_cookie(visitors.cookie, value, httponly=True, samesite="Strict", path="/")
        return answer

    def _visitor(self, request: web.Request) -> Visitor:
        found = self._frame.visitors.find(request.cookies)
        if found is None:
            raise web.HTTPUnauthorized(
                reason="this browser is not logged in: open the address that the command printed"
            )
        return found

    async def _page(self, request: web.Request) -> web.Response:
        visitor = self._visitor(request)
        address = request.path_qs
        made = await self._run(self._made, visitor, address)
        if made is None:
            return self._refusal(404, "there is no such page", visitor)
        return self._html(*made, address, visitor)

    async def _stream(self, request: web.Request) -> web.StreamResponse:
        visitor = self._visitor(request)
        if not secrets.compare_digest(request.headers.get("Torchq-Secret", "").encode(), visitor.secret.encode()):
            raise web.HTTPForbidden(reason="the page is of an earlier login: load it again")
        try:
            asked = orjson.loads(await request.read())
            address, shown = (
                str(asked["page"]),
                {name: [(i, v) for i, v in each] for name, each in asked["shown"].items()},
            )
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise web.HTTPBadRequest(reason="the body does not say which page is open") from error
        stream = web.StreamResponse(headers={**protection.HEADERS, "X-Accel-Buffering": "no"})
        stream.content_type = "text/event-stream"
        await stream.prepare(request)
        loop, heard = asyncio.get_running_loop(), 0.0
        while not self._stopping.is_set():
            if self._frame.visitors.find(request.cookies) is not visitor:
                break
            made = await self._run(self._made, visitor, address)
            if made is None:
                break
            changed = changes.compare(shown, made[1])
            if changed:
                await stream.write(b"data: " + orjson.dumps(changed) + b"\n\n")
                heard = loop.time()
                shown = changes.versions(made[1])
            elif loop.time() - heard > HEARTBEAT_SECONDS:
                await stream.write(b": alive\n\n")
                heard = loop.time()
            await self._pause()
        if not self._stopping.is_set():
            await stream.write(b"event: end\ndata:\n\n")
        return stream

    async def _pause(self) -> None:
        try:
            await asyncio.wait_for(self._stopping.wait(), EVERY_SECONDS)
        except TimeoutError:
            return

    async def _run(self, function: Callable[..., T], *arguments: Any) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, partial(function, *arguments))

    def _made(self, visitor: Visitor, address: str) -> tuple[Page, DrawnPage] | None:
        """Return the page at an address as it is now; None if nothing is there for this visitor."""
        parts = urlsplit(address)
        found = routes.find(parts.path)
        if found is None:
            return None
        route, names = found
        parameters: Mapping[str, str] = dict(parse_qsl(parts.query)) | names
        try:
            loaded = route.load(visitor, parameters)
        except (UnknownObject, errors.NotFound):
            return None
        asked = Asked(parameters, self._frame.readings.newest(), visitor.bounds(), loaded, visitor.may_act)
        page = route.view(asked)
        return page, drawing.draw(page)


async def serve(frame: Frame, port: int, ready: Callable[[int], None], stopped: Callable[[], Awaitable[None]]) -> None:
    """Answer at a port of the address until `stopped` returns. `ready` is told the port. Raises OSError."""
    server = DashboardServer(frame)
    runner = web.AppRunner(server.application(), access_log=None, shutdown_timeout=2.0)
    await runner.setup()
    try:
        site = web.TCPSite(runner, frame.address, port)
        await site.start()
        ready(runner.addresses[0][1])
        await stopped()
    finally:
        await runner.cleanup()
