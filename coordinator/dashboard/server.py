"""The server of the dashboard: pages, logins, and one stream of changes for each page that is open.

One rule: this module and `connections` alone use aiohttp. The event loop waits for nothing but clients: what asks
servers, or draws, runs in threads.
"""

import asyncio
import hashlib
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from email.utils import formatdate
from functools import partial
from importlib.resources import files
from typing import Any, TypeVar
from urllib.parse import parse_qsl

from aiohttp import HttpVersion11, web

from coordinator.dashboard import drawing, protection
from coordinator.dashboard.access.logins import COOKIE, SECURE_COOKIE, Logins, NotLoggedIn, TooManyLogins
from coordinator.dashboard.acts import acting, buttons
from coordinator.dashboard.acts.acting import AskedChange
from coordinator.dashboard.connections import ConnectionOutlet, Connections
from coordinator.dashboard.daemon_threads import DaemonThreads
from coordinator.dashboard.elements import Download, DrawnPage, Page
from coordinator.dashboard.made_pages import MadePage, PageMaker, UnreadableAddress
from coordinator.dashboard.pages import act
from coordinator.dashboard.readings import FAILURES, Readings
from coordinator.dashboard.streams import ALIVE, END, Streams, read_request
from coordinator.dashboard.visitors import Lookers, OneVisitor, Visitor, Visitors
from coordinator.http.listening_ports import is_for_address
from kube import errors
from kube.process.turns import Turn

THREADS = 16
BODY_BYTES = 512 * 1024
"""The largest body of a request: the versions of all elements of a page."""
FORM_BYTES, MOST_FIELDS = 64 * 1024, 50
BODY_SECONDS = 10.0
"""How long a client may take to send the body of a request."""
STATIC = {"dashboard.css": "text/css", "dashboard.js": "text/javascript", "icon.svg": "image/svg+xml"}
LINKS = (("/", "Queues"), ("/jobs", "Jobs"), ("/usage", "Usage"))
FAILED = "this page could not be made: the log of the dashboard says why"
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
OPENED = "this address was opened already, or is wrong: run torchq dashboard again"
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
    hosts: frozenset[str] = frozenset()
    """The names by which browsers reach the server; empty for any name, or for those of loopback."""
    drain_seconds: float = 2.0
    """How long requests in progress may take once the server ends."""
    turn: Turn | None = None
    """The event loop, as probes look at it."""
    clock: Callable[[], float] = time.time
    """The time from which browsers count ages, in seconds since 1970."""


class _Answers:
    """The answers that need nothing but the frame."""

    def __init__(self, frame: Frame) -> None:
        self._frame = frame
        package = files("coordinator.dashboard") / "static"
        self._static = {name: (package / name).read_bytes() for name in STATIC}
        # The address of a file differs if the file does, so browsers may keep it for ever.
        self._release = hashlib.blake2s(b"".join(self._static.values()), digest_size=6).hexdigest()

    def refusal(self, code: int, text: str, visitor: Visitor | None = None) -> web.Response:
        """Return a page that says why something is not shown."""
        return self.html(Page("refusal", "Not shown", {"problems": ()}, {"text": text, "code": code}), visitor, code)

    def html(
        self,
        page: Page,
        visitor: Visitor | None = None,
        code: int = 200,
        drawn: DrawnPage | None = None,
        address: str = "",
    ) -> web.Response:
        """Return a page as a document."""
        frame = {
            "address": address,
            "secret": visitor.secret if visitor else "",
            "visitor": visitor.name if visitor else "",
            "cluster": self._frame.cluster,
            "links": LINKS if visitor else (),
            "leaves": visitor is not None and isinstance(self._frame.visitors, Logins),
            "release": self._release,
        }
        text = drawing.document(page, drawing.draw(page) if drawn is None else drawn, frame)
        return web.Response(text=text, status=code, content_type="text/html")

    async def file(self, request: web.Request) -> web.Response:
        """Return a script, style or picture."""
        name = request.match_info["name"]
        if name not in self._static:
            raise web.HTTPNotFound(reason="there is no such file")
        headers = {"Cache-Control": protection.STATIC_CACHE}
        return web.Response(body=self._static[name], content_type=STATIC[name], charset="utf-8", headers=headers)


class _Unknown(Exception):
    """A browser that is not logged in."""


class DashboardServer:
    """Answers browsers."""

    def __init__(self, frame: Frame) -> None:
        self._frame = frame
        self._threads = DaemonThreads(THREADS, "dashboard")
        self._pages = PageMaker(frame.readings)
        self.streams = Streams(frame.readings, self._make, self._pages.lookers, frame.turn)
        self.connections = Connections()
        self._answers = _Answers(frame)

    def application(self) -> web.Application:
        """Return the application with all its paths."""
        app = web.Application(middlewares=[self._guard], client_max_size=BODY_BYTES)
        app.router.add_get("/static/{version}/{name}", self._answers.file)
        if isinstance(self._frame.visitors, Logins):
            app.router.add_get("/login", self._login_page)
            app.router.add_post("/login", self._login)
            app.router.add_post("/logout", self._logout)
        else:
            app.router.add_get("/open", self._open)
        app.router.add_post("/stream", self._stream)
        app.router.add_post(buttons.PATH, self._act)
        app.router.add_get("/{path:.*}", self._page)
        app.on_startup.append(self._start)
        app.on_shutdown.append(self._stop)
        return app

    async def _start(self, _app: web.Application) -> None:
        self.streams.start()

    async def _stop(self, _app: web.Application) -> None:
        await self.streams.stop()
        self._threads.shutdown()

    @web.middleware
    async def _guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        self.connections.note_request(request.protocol)
        answer = await self._answer(request, handler)
        if not answer.prepared:
            answer.headers.update({**protection.HEADERS, **answer.headers})
        return answer

    async def _answer(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        headers = request.headers
        host = headers.get("Host", "")
        hosts = self._frame.hosts
        if not (protection.is_for_host(host, hosts) if hosts else is_for_address(host, self._frame.address)):
            return self._answers.refusal(403, "the Host header names another host: open the address of the dashboard")
        if request.method == "POST" and not protection.is_own_origin(headers):
            return self._answers.refusal(403, "the request comes from a page of another site")
        try:
            return await handler(request)
        except web.HTTPException as error:
            return self._answers.refusal(error.status, error.reason)
        except _Unknown:
            return self._unknown(request)
        except (UnreadableAddress, acting.NotAsked) as error:
            return self._answers.refusal(400, str(error))
        except errors.Forbidden as error:
            return self._answers.refusal(403, str(error))
        except FAILURES as error:
            return self._answers.refusal(503, str(error))
        except Exception:
            log.exception("%s %s", request.method, request.path[:200])
            return self._answers.refusal(500, FAILED)

    def _unknown(self, request: web.Request) -> web.StreamResponse:
        """Return the answer to a browser that is not logged in."""
        if protection.comes_from_elsewhere(request.headers):
            # A browser that follows a link of another site keeps the cookie to itself; asked again from here, it does
            # not.
            return self._answers.html(Page("again", "torchq", {"problems": ()}, {"next": request.path_qs}))
        if isinstance(self._frame.visitors, Logins):
            return self._login_form(request, request.path_qs)
        return self._answers.refusal(401, "this browser is not logged in: open the address that the command printed")

    async def _open(self, request: web.Request) -> web.Response:
        visitors = self._frame.visitors
        assert isinstance(visitors, OneVisitor)
        answer = web.Response(status=303, headers={"Location": "/"})
        value = visitors.open(request.query.get("code", ""))
        if value is None:
            if visitors.find(request.cookies, is_secure=False) is not None:
                return answer  # who has closed the tab opens the printed address again
            return self._answers.refusal(403, OPENED)
        answer.set_cookie(visitors.cookie, value, httponly=True, samesite="Strict", path="/")
        return answer

    def _login_form(self, request: web.Request, path: str, problem: str = "", code: int = 200) -> web.Response:
        values = {
            "next": protection.own_path(path),
            "problem": problem,
            "is_secure": protection.is_over_tls(request.headers),
        }
        return self._answers.html(Page("login", "Log in", {"problems": ()}, values), code=code)

    async def _login_page(self, request: web.Request) -> web.Response:
        return self._login_form(request, request.query.get("next", "/"))

    async def _login(self, request: web.Request) -> web.Response:
        visitors = self._frame.visitors
        assert isinstance(visitors, Logins)
        form = await self._form(request)
        path = protection.own_path(form.get("next", "/"))
        is_secure = protection.is_over_tls(request.headers)
        address = protection.client_address(request.headers, request.remote or "")
        try:
            value = await self._run(visitors.log_in, form.get("token", ""), address)
        except NotLoggedIn as error:
            return self._login_form(request, path, str(error), 429 if isinstance(error, TooManyLogins) else 403)
        except FAILURES as error:
            return self._login_form(request, path, str(error), 503)
        answer = web.Response(status=303, headers={"Location": path})
        name = SECURE_COOKIE if is_secure else COOKIE
        answer.set_cookie(name, value, httponly=True, samesite="Strict", path="/", secure=is_secure)
        return answer

    async def _logout(self, request: web.Request) -> web.Response:
        visitor = self._visitor(request)
        _check_secret(visitor, (await self._form(request)).get("secret", ""))
        self._frame.visitors.end(visitor)
        answer = web.Response(status=303, headers={"Location": "/login"})
        is_secure = protection.is_over_tls(request.headers)
        answer.del_cookie(SECURE_COOKIE if is_secure else COOKIE, path="/", secure=is_secure, samesite="Strict")
        return answer

    async def _act(self, request: web.Request) -> web.Response:
        visitor = self._visitor(request)
        form = await self._form(request)
        _check_secret(visitor, form.get("secret", ""))
        target: AskedChange | None = None
        try:
            target = acting.target(form)
            said = await self._run(acting.act, visitor, target, form)
        except FAILURES as error:
            return self._answers.html(act.acted([str(error)], target, is_done=False), visitor, acting.code(error))
        act.expire(visitor, target)
        log.info("%s %s for %s", target.verb.name, target.subject, visitor.name)
        return self._answers.html(act.acted(said, target, is_done=True), visitor)

    async def _form(self, request: web.Request) -> Mapping[str, str]:
        """Return the fields of a form."""
        body = await self._body(request)
        if len(body) > FORM_BYTES:
            raise web.HTTPRequestEntityTooLarge(FORM_BYTES, len(body))
        try:
            return dict(parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=MOST_FIELDS))
        except ValueError:
            raise web.HTTPBadRequest(reason="the form cannot be read") from None

    async def _body(self, request: web.Request) -> bytes:
        try:
            return await asyncio.wait_for(request.read(), BODY_SECONDS)
        except TimeoutError:
            raise web.HTTPRequestTimeout(reason="the request did not arrive in time") from None

    def _visitor(self, request: web.Request) -> Visitor:
        is_secure = protection.is_over_tls(request.headers)
        found = self._frame.visitors.find(request.cookies, is_secure=is_secure)
        if found is None:
            raise _Unknown
        return found

    async def _page(self, request: web.Request) -> web.Response:
        visitor = self._visitor(request)
        address = request.path_qs
        try:
            made = await self._make(visitor, address)
        except errors.Unauthorized as error:
            if isinstance(self._frame.visitors, Logins):
                raise _Unknown from error
            raise
        if made is None:
            return self._answers.refusal(404, "there is no such page, or you may not see it", visitor)
        if made.page.download is not None:
            return _file(made.page.download)
        return self._answers.html(made.page, visitor, drawn=made.drawn, address=address)

    async def _make(self, lookers: Lookers, address: str) -> MadePage | None:
        """Return a page as it is now. The session of a token that is not accepted any more ends."""
        try:
            return await self._run(self._pages.make, lookers, address)
        except errors.Unauthorized:
            if isinstance(lookers, Visitor):
                self._frame.visitors.end(lookers)
            raise

    async def _stream(self, request: web.Request) -> web.StreamResponse:
        cookies, is_secure = dict(request.cookies), protection.is_over_tls(request.headers)
        try:
            asked = read_request(await self._body(request))
        except ValueError as error:
            raise web.HTTPBadRequest(reason=str(error)) from None
        visitor = self._frame.visitors.find(cookies, is_secure=is_secure)
        answer = _events(request, self._frame.clock())
        await answer.prepare(request)
        outlet = ConnectionOutlet(request.transport, is_chunked=answer.chunked)

        def is_there() -> bool:
            return outlet.is_open() and self._frame.visitors.find(cookies, is_secure=is_secure) is visitor

        try:
            if visitor is None or not visitor.is_secret(request.headers.get("Torchq-Secret", "")):
                await answer.write(END)
                return answer
            await answer.write(ALIVE)  # the head goes with it
            if await self.streams.follow(visitor, asked, outlet, is_there):
                return answer
        except ConnectionError:
            return answer
        except Exception:
            log.exception("the stream of %s", asked.address.partition("?")[0][:200])
        outlet.abort()
        return answer

    async def _run(self, function: Callable[..., T], *arguments: Any) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, partial(function, *arguments))


def _events(request: web.Request, now: float) -> web.StreamResponse:
    """Return an answer of server-sent events, which has no end. `now` is in seconds since 1970."""
    date = {"Date": formatdate(now, usegmt=True)}
    answer = web.StreamResponse(headers={**protection.HEADERS, **date, "X-Accel-Buffering": "no"})
    answer.content_type = "text/event-stream"
    if request.version >= HttpVersion11:
        answer.enable_chunked_encoding()
    return answer


def _check_secret(visitor: Visitor, shown: str) -> None:
    if not visitor.is_secret(shown):
        raise web.HTTPForbidden(reason="the page is of an earlier login: load it again")


def _file(download: Download) -> web.Response:
    # A name in quotes has only characters that cannot end them.
    name = "".join(each if each.isascii() and (each.isalnum() or each in "-._") else "_" for each in download.name)
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    return web.Response(text=download.text, content_type=download.kind, charset="utf-8", headers=headers)


async def serve(frame: Frame, port: int, ready: Callable[[int], None], stopped: Callable[[], Awaitable[None]]) -> None:
    """Answer at a port of the address until `stopped` returns. `ready` is told the port. By then `stopped` has begun,
    as whoever reads the address may send a signal at once. Raises OSError."""
    server = DashboardServer(frame)
    runner = web.AppRunner(server.application(), shutdown_timeout=frame.drain_seconds)
    await runner.setup()
    loop = asyncio.get_running_loop()
    try:
        assert runner.server is not None
        listening = await loop.create_server(server.connections.of(runner.server), frame.address, port)
        try:
            stop = asyncio.ensure_future(stopped())
            await asyncio.sleep(0)
            ready(listening.sockets[0].getsockname()[1])
            await stop
        finally:
            listening.close()
    finally:
        await runner.cleanup()
