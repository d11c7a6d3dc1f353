"""Faulty networks between one process and the API server, and between that process and Redis.

One rule: a proxy is transparent except while it has a trouble. All proxies run in one thread with an event loop of its
own.

Troubles of a connection to the API server (half of the requests are hit, at random):
    cut      the connection breaks before the request is passed on or before the answer is; watches break, too
    delay    request and answer are each delayed by up to a second
    refuse   the answer is 409, 410, 429, 500, 503 or silence, and the request has no effect
    forget   a write takes effect, but the answer is 409, 429, 500, 504, silence or a broken connection
    gone     watches end with 410
    stall    all traffic waits until the trouble is over
Troubles of a connection to Redis:
    cut      connections break every few answers
    delay    each piece of data is delayed by up to a quarter of a second
    away     connections are refused
    forget   the command takes effect, and the connection breaks before the answer
    stall    as above
"""

import asyncio
import contextlib
import random
import ssl
import threading
from collections.abc import Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import orjson
import yaml
from aiohttp import web

SILENCE_SECONDS = 3.0
"""How long a silent answer takes before the connection breaks."""
_HOP_BY_HOP = {"connection", "keep-alive", "transfer-encoding", "host", "content-length", "te", "upgrade"}
_WRITES = ("POST", "PUT", "PATCH", "DELETE")
_REASONS = {409: "Conflict", 410: "Expired", 429: "TooManyRequests", 500: "InternalError", 504: "Timeout"}
_SILENT, _BROKEN = 0, -1


@dataclass
class Line:
    """A connection between a client and a server, with the trouble that it has now."""

    name: str
    dice: random.Random
    trouble: str = ""
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    """Set, and replaced, whenever the trouble changes."""
    hits: int = 0

    def set(self, trouble: str) -> None:
        """Begin a trouble; the empty string ends it."""
        self.trouble = trouble
        self.changed.set()
        self.changed = asyncio.Event()

    def hit(self, *troubles: str) -> bool:
        """Return at random whether one of these troubles, if the line has it now, hits this request."""
        unlucky = self.trouble in troubles and self.dice.random() < 0.5
        self.hits += unlucky
        return unlucky

    async def pass_stall(self) -> None:
        """Wait until a stall is over."""
        while self.trouble == "stall":
            self.hits += 1
            await self.changed.wait()


class ApiProxy:
    """An HTTP proxy in front of an API server."""

    def __init__(self, line: Line, kubeconfig: dict[str, Any]) -> None:
        self.line = line
        self._upstream, self._tls = _server(kubeconfig)
        self.port = 0

    async def start(self) -> None:
        """Listen on a free port."""
        connector = aiohttp.TCPConnector(limit=0, ssl=self._tls if self._tls else True)
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=5)
        self._session = aiohttp.ClientSession(connector=connector, timeout=timeout, auto_decompress=False)
        application = web.Application(client_max_size=2**26)
        application.router.add_route("*", "/{path:.*}", self._serve)
        self._runner = web.AppRunner(application, access_log=None, shutdown_timeout=1.0)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.port = self._runner.addresses[0][1]

    async def close(self) -> None:
        """Stop listening."""
        await self._session.close()
        await self._runner.cleanup()

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        line = self.line
        await line.pass_stall()
        if line.hit("delay"):
            await asyncio.sleep(line.dice.uniform(0, 1))
        if line.hit("cut"):
            return _broken(request)
        if line.hit("refuse"):
            return await self._answer(request, line.dice.choice((409, 410, 429, 500, 503, _SILENT)))
        if "watch=true" in request.query_string or "watch=1" in request.query_string:
            return await self._watch(request)
        return await self._pass_on(request, body)

    async def _pass_on(self, request: web.Request, body: bytes) -> web.StreamResponse:
        line = self.line
        try:
            async with self._ask(request, body) as answer:
                data = await answer.read()
        except (aiohttp.ClientError, OSError, TimeoutError):
            return _broken(request)
        await line.pass_stall()
        if line.hit("delay"):
            await asyncio.sleep(line.dice.uniform(0, 1))
        if line.hit("cut"):
            return _broken(request)
        if request.method in _WRITES and line.hit("forget"):
            return await self._answer(request, line.dice.choice((409, 429, 500, 504, _SILENT, _BROKEN)))
        return web.Response(status=answer.status, body=data, headers=_passed(answer.headers))

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        line = self.line
        if line.hit("gone"):
            return await self._answer(request, 410)
        try:
            async with self._ask(request, b"") as answer:
                response = web.StreamResponse(status=answer.status, headers=_passed(answer.headers))
                await response.prepare(request)
                await self._stream(answer, response)
        except (aiohttp.ClientError, OSError, TimeoutError):
            pass
        return _broken(request)

    async def _stream(self, answer: aiohttp.ClientResponse, response: web.StreamResponse) -> None:
        """Pass on a watch until it ends or a trouble ends it."""
        reading = asyncio.ensure_future(answer.content.readany())
        try:
            while True:
                changed = asyncio.ensure_future(self.line.changed.wait())
                await asyncio.wait((reading, changed), return_when=asyncio.FIRST_COMPLETED)
                changed.cancel()
                if self.line.trouble == "cut":
                    return
                if self.line.trouble == "gone":
                    await response.write(orjson.dumps({"type": "ERROR", "object": _status(410)}) + b"\n")
                    await response.write_eof()
                    return
                await self.line.pass_stall()
                if reading.done():
                    data = reading.result()
                    if not data:
                        await response.write_eof()
                        return
                    if self.line.trouble == "delay":
                        await asyncio.sleep(self.line.dice.uniform(0, 1))
                    await response.write(data)
                    reading = asyncio.ensure_future(answer.content.readany())
        finally:
            reading.cancel()
            with contextlib.suppress(asyncio.CancelledError, aiohttp.ClientError, OSError):
                await reading

    def _ask(self, request: web.Request, body: bytes) -> Any:
        return self._session.request(
            request.method, self._upstream + request.raw_path, data=body or None, headers=_passed(request.headers)
        )

    async def _answer(self, request: web.Request, code: int) -> web.StreamResponse:
        """Send a refusal, send nothing, or break the connection."""
        if code == _SILENT:
            await asyncio.sleep(SILENCE_SECONDS)
            return _broken(request)
        if code == _BROKEN:
            return _broken(request)
        body = _status(code, "AlreadyExists" if code == 409 and request.method == "POST" else "")
        headers = {"Retry-After": "1"} if code == 429 else {}
        return web.json_response(body, status=code, headers=headers)


class RedisProxy:
    """A TCP proxy in front of a Redis socket."""

    def __init__(self, line: Line, socket: Path) -> None:
        self.line = line
        self._socket = socket
        self._open: set[asyncio.StreamWriter] = set()
        self.port = 0

    async def start(self) -> None:
        """Listen on a free port."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        """Stop listening."""
        self._server.close()
        self.break_all()
        await asyncio.sleep(0)

    def break_all(self) -> None:
        """Break all open connections."""
        for writer in [*self._open]:
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.line.trouble == "away":
            self.line.hits += 1
            writer.transport.abort()
            return
        try:
            there, back = await asyncio.open_unix_connection(str(self._socket))
        except OSError:
            writer.transport.abort()
            return
        self._open |= {writer, back}
        try:
            await asyncio.gather(self._pump(reader, back), self._pump(there, writer, answers=True))
        finally:
            for each in (writer, back):
                self._open.discard(each)
                each.transport.abort()

    async def _pump(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, answers: bool = False) -> None:
        line = self.line
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            while data := await source.read(65536):
                await line.pass_stall()
                if line.trouble == "delay":
                    line.hits += 1
                    await asyncio.sleep(line.dice.uniform(0, 0.25))
                if (line.trouble == "cut" or (answers and line.trouble == "forget")) and line.dice.random() < 0.2:
                    line.hits += 1
                    break
                sink.write(data)
                await sink.drain()
        sink.transport.abort()


class Network:
    """All connections of a run. Only one thread may use it; the proxies run in another thread."""

    def __init__(self, seed: int, kubeconfig: Path, redis_socket: Path, clients: list[str]) -> None:
        config = yaml.safe_load(kubeconfig.read_text())
        self._config = config
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="network")
        self._thread.start()
        self._api = {each: ApiProxy(Line(each, random.Random(f"{seed} api {each}")), config) for each in clients}
        self._redis = {
            each: RedisProxy(Line(each, random.Random(f"{seed} redis {each}")), redis_socket) for each in clients
        }
        for proxy in (*self._api.values(), *self._redis.values()):
            self._do(proxy.start())

    def kubeconfig(self, client: str) -> str:
        """Return a kubeconfig that leads through a client's proxy."""
        config = orjson.loads(orjson.dumps(self._config))
        for each in config["clusters"]:
            each["cluster"] = {"server": f"http://127.0.0.1:{self._api[client].port}"}
        return str(orjson.dumps(config).decode())

    def redis_port(self, client: str) -> int:
        """Return the port of a client's proxy to Redis."""
        return self._redis[client].port

    def api(self, client: str, trouble: str) -> None:
        """Set the trouble of a client's connection to the API server; the empty string ends it."""
        self._loop.call_soon_threadsafe(self._api[client].line.set, trouble)

    def redis(self, client: str, trouble: str) -> None:
        """Set the trouble of a client's connection to Redis; the empty string ends it."""

        def change() -> None:
            proxy = self._redis[client]
            proxy.line.set(trouble)
            if trouble in ("cut", "away"):
                proxy.break_all()

        self._loop.call_soon_threadsafe(change)

    def well(self) -> None:
        """End all troubles."""
        for client in self._api:
            self.api(client, "")
            self.redis(client, "")

    def hits(self) -> dict[str, int]:
        """Return how often a trouble hit each connection."""
        lines = {"api": self._api, "redis": self._redis}
        return {f"{kind}:{name}": proxy.line.hits for kind, each in lines.items() for name, proxy in each.items()}

    def close(self) -> None:
        """Stop the proxies and their thread."""
        for proxy in (*self._api.values(), *self._redis.values()):
            self._do(proxy.close())
        self._do(_end_all())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _do(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(30)


async def _end_all() -> None:
    rest = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    for task in rest:
        task.cancel()
    await asyncio.gather(*rest, return_exceptions=True)


def _server(kubeconfig: dict[str, Any]) -> tuple[str, ssl.SSLContext | None]:
    """Return the URL of the API server in the current context, and the TLS context for it."""
    name = next(
        each["context"]["cluster"] for each in kubeconfig["contexts"] if each["name"] == kubeconfig["current-context"]
    )
    cluster = next(each["cluster"] for each in kubeconfig["clusters"] if each["name"] == name)
    url = str(cluster["server"]).rstrip("/")
    if urlsplit(url).scheme != "https":
        return url, None
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE  # a server on this machine; its certificate is not under test
    return url, context


def _passed(headers: Any) -> dict[str, str]:
    return {name: value for name, value in headers.items() if name.lower() not in _HOP_BY_HOP}


def _broken(request: web.Request) -> web.StreamResponse:
    """Break the connection without an answer."""
    if request.transport is not None:
        request.transport.abort()
    return web.Response(status=500)


def _status(code: int, reason: str = "") -> dict[str, Any]:
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "message": f"a {code} of the network's own",
        "reason": reason or _REASONS.get(code, "ServiceUnavailable"),
        "code": code,
    }
