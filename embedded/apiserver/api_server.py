"""The embedded API server: a Kubernetes API on loopback, stored in one folder.

One rule: the server answers a write only after it is on disk, and it answers only requests with the token.

The server serves HTTPS only, since official clients do not send their token over plain HTTP. On one machine HTTPS costs
5 to 10 % of the requests a second, measured on one connection and on eight, which does not justify a second, plain
port.

Run it with `python -m embedded.apiserver.api_server --data DIR [--port N]`, or in a test with `running(layout)`.
"""

import argparse
import asyncio
import contextlib
import errno
import logging
import signal
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson
from aiohttp import web

from crds.api_resources import CRDS
from embedded.apiserver import status_errors
from embedded.apiserver.http import (
    certificates,
    client_guard,
    discovery,
    log_answers,
    openapi_protobuf,
    pod_logs,
    reviews,
    server_metrics,
    token,
)
from embedded.apiserver.http.listener import Listener, raise_limit
from embedded.apiserver.http.namespace_turns import NamespaceTurns
from embedded.apiserver.http.openapi import SECOND, OpenApi
from embedded.apiserver.kinds import builtins, custom_resources
from embedded.apiserver.kinds.catalog import Catalog, storage
from embedded.apiserver.status_errors import StatusError
from embedded.apiserver.storage.disk import Disk, DiskFailed, DiskFull
from embedded.apiserver.storage.journal import Change
from embedded.apiserver.storage.object_store import Store
from embedded.apiserver.verbs import admission, watch_streams
from embedded.apiserver.verbs.garbage_collector import GarbageCollector
from embedded.apiserver.verbs.handlers import ApiRequest, ApiResponse, Handlers
from embedded.apiserver.verbs.watch_streams import WatchServer
from embedded.apiserver.wire import encoding, options, protobuf
from embedded.apiserver.wire import request_target as wire_request
from embedded.apiserver.wire.encoding import Encoder
from embedded.apiserver.wire.options import WriteOptions
from embedded.layout import Layout
from kube.process import gc_tuning, threads

_LOG = logging.getLogger(__name__)
_HEALTH = frozenset(f"/{name}{part}" for name in ("healthz", "livez", "readyz") for part in ("", "/ping"))
_LEAST_COMPRESSED = 128 * 1024
"""The bytes from which an answer is compressed, for a client that accepts gzip."""
_WARNING = '299 - "{}"'


class PortInUse(Exception):
    """Another process listens on the port."""


class ApiServer:
    """One embedded API server. Only one event loop may call its methods."""

    def __init__(self, layout: Layout, host: str = "127.0.0.1", port: int = 0) -> None:
        token.check_host(host)
        self._layout = layout
        self._address = host, port
        self._watches: set[WatchServer] = set()
        self._metrics = server_metrics.Metrics()
        self.token = token.token(layout)
        self.url = ""
        """The address of the started server; empty before."""

    @property
    def kubeconfig(self) -> Path:
        """The path of the kubeconfig that `start` writes."""
        return self._layout.kubeconfig

    async def start(self) -> None:
        """Load the stored objects, listen, and write the kubeconfig. Raise PortInUse or DiskFailed if the start
        fails."""
        self._disk = Disk(self._layout.database)
        try:
            self._open()
            certificates.prepare(self._layout, datetime.now(UTC))
            await self._listen()
        except BaseException:
            self._disk.close()
            raise
        authority = certificates.authority_pem(self._layout)
        token.write_private(self.kubeconfig, token.kubeconfig(self.url, self.token, authority))

    def _open(self) -> None:
        self._catalog = Catalog(builtins.KINDS)
        self._store = Store(self._disk, self._catalog.selectable)
        for stored in self._store.items(storage(CRDS)):
            self._define(stored.manifest())
        self._openapi = OpenApi(self._catalog)
        self._handlers = Handlers(self._store, self._catalog)
        self._turns = NamespaceTurns()
        self._store.subscribe(self._follow_definitions)
        self._job_logs = log_answers.JobLogs(self._layout, self._store)
        self._job_logs.remove_leftovers()
        GarbageCollector(self._store, self._catalog, self._handlers.deleter).start()
        for resource, manifest in builtins.initial_objects():
            kind = self._catalog.by_storage(storage(resource))
            if kind is not None and self._store.get(kind.storage, "", manifest["metadata"]["name"]) is None:
                admission.admit(kind, manifest, WriteOptions())
                self._handlers.writer.create(kind, "", manifest, WriteOptions())
        self._store.flush()

    async def _listen(self) -> None:
        self._connections = client_guard.ConnectionServer(self._handle)
        self._runner = web.ServerRunner(self._connections, shutdown_timeout=2.0)
        await self._runner.setup()
        try:
            secure = certificates.context(self._layout)
            self._listener = Listener(secure, self._connections.answer)
            host, port = self._listener.start(*self._address)[:2]
        except OSError as error:
            await self._runner.cleanup()
            if error.errno == errno.EADDRINUSE:
                host, port = self._address
                message = f"port {port} on {host} is in use: stop its process or choose another port"
                raise PortInUse(message) from error
            raise
        self.url = f"https://{f'[{host}]' if ':' in host else host}:{port}"

    async def stop(self) -> None:
        """Finish the requests in progress and close the database."""
        for watch in tuple(self._watches):
            watch.end()
        await self._listener.stop()
        await self._runner.cleanup()
        await self._connections.hang_up()
        self._store.flush()
        await self._job_logs.finish()
        self._disk.close()

    def _follow_definitions(self, resource: str, change: Change) -> None:
        if resource != storage(CRDS):
            return
        if change.kind == "DELETED":
            self._catalog.unregister(change.object.name)
        else:
            self._define(change.object.manifest())

    def _define(self, definition: dict[str, Any]) -> None:
        kind = custom_resources.kind_of(definition)
        if kind is not None:
            self._catalog.register(kind)
        else:
            self._catalog.unregister(definition["metadata"]["name"])

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        return client_guard.close_if_anonymous(request, await self._respond(request))

    async def _respond(self, request: web.BaseRequest) -> web.StreamResponse:
        try:
            return _as_preferred(request, await self._route(request))
        except StatusError as refusal:
            self._metrics.count_refusal(refusal.code, refusal.reason)
            return _error_response(request, refusal)
        except RecursionError:
            return _json(status_errors.bad_request("the body is nested too deeply").status(), 400)
        except DiskFull as error:
            return _json(status_errors.insufficient_storage(str(error)).status(), 507)
        except DiskFailed as error:
            return _json(status_errors.internal(str(error)).status(), 500)
        except (ConnectionError, asyncio.CancelledError, web.HTTPException):
            raise
        except Exception:
            _LOG.exception("%s %s failed", request.method, request.path)
            return _json(status_errors.internal("see the API server's log").status(), 500)

    async def _route(self, request: web.BaseRequest) -> web.StreamResponse:
        path = client_guard.decoded_path(request)
        if path in _HEALTH:
            return web.Response(text="ok")
        if not token.admits(request.headers.get("Authorization", ""), self.token):
            raise StatusError(401, "Unauthorized", "Unauthorized")
        client_guard.trust(request)
        page = await self._page(request, path)
        return await self._route_resource(request, path) if page is None else page

    async def _page(self, request: web.BaseRequest, path: str) -> web.StreamResponse | None:
        """Return the answer at a path that is not the path of a resource; None for any other path."""
        if path == "/metrics":
            objects, changes = self._store.counts(), self._store.history_size()
            return web.Response(text=self._metrics.text(objects, len(self._watches), changes))
        if path.startswith("/openapi/"):
            return _compress(request, self._openapi_document(request))
        if self._job_logs.serves(path):
            return await self._job_logs.answer(request, path)
        if _is_discovery(path):
            return _json(discovery.answer(path, self._catalog))
        if reviews.serves(path):
            return _json(reviews.answer(request.method, path, await client_guard.body(request), self.token), 201)
        return None

    async def _route_resource(self, request: web.BaseRequest, path: str) -> web.StreamResponse:
        target = wire_request.target(path, self._catalog)
        self._count(request, target)
        if request.method == "GET" and target.subresource == "log":
            pod = self._handlers.find(target).manifest()
            return await pod_logs.serve(request, pod_logs.parse(pod, self._layout, request.query))
        include = request.query.get("includeObject") or "Metadata"
        encoder = Encoder(target.kind, encoding.negotiate(client_guard.header(request, "Accept"), include))
        if request.method == "GET" and not target.name and options.flag(request.query, "watch"):
            watch_request = watch_streams.parse(target.kind, target.namespace, request.query)
            if encoder.representation.yaml:
                raise encoding.not_acceptable()  # a stream of YAML does not show where an event ends
            return await watch_streams.serve(request, watch_request, self._store, self._watches, encoder)
        return await self._answer(request, target, encoder)

    async def _answer(self, request: web.BaseRequest, target: wire_request.Target, encoder: Encoder) -> web.Response:
        body = await client_guard.body(request)
        content_type = client_guard.header(request, "Content-Type").partition(";")[0].strip()
        if content_type == protobuf.MEDIA_TYPE:
            body, content_type = orjson.dumps(protobuf.read(body)), "application/json"
        agent = client_guard.header(request, "User-Agent")
        await self._turns.take(target.namespace)
        answer = self._handlers.answer(ApiRequest(request.method, target, request.query, content_type, body, agent))
        await self._store.durable()
        if request.method == "GET" and target.subresource in {"", "status"}:
            answer = replace(answer, body=encoder.answer(answer.body))
        return _compress(request, _response(answer))

    def _openapi_document(self, request: web.BaseRequest) -> web.Response:
        accept = client_guard.header(request, "Accept")
        if request.path == SECOND and accept.partition(";")[0].strip() == openapi_protobuf.MEDIA_TYPE:
            document = openapi_protobuf.document(orjson.loads(self._openapi.answer(SECOND)))
            return web.Response(body=document, content_type=openapi_protobuf.ANSWERED)
        encoding.negotiate(accept)
        return _bytes(self._openapi.answer(request.path))

    def _count(self, request: web.BaseRequest, target: wire_request.Target) -> None:
        watching = "watch" in request.query and options.flag(request.query, "watch")
        verb = server_metrics.verb(request.method, bool(target.name), watching)
        agent = client_guard.header(request, "User-Agent")
        self._metrics.count_request(agent, verb, target.kind.storage, target.subresource)


def _is_discovery(path: str) -> bool:
    parts = path.strip("/").split("/")
    return parts[0] not in {"api", "apis"} or len(parts) <= (2 if parts[0] == "api" else 3)


def _json(value: Any, code: int = 200) -> web.Response:
    return _bytes(orjson.dumps(value), code)


def _bytes(body: bytes, code: int = 200) -> web.Response:
    return web.Response(body=body, status=code, content_type="application/json")


def _compress(request: web.BaseRequest, response: web.Response) -> web.Response:
    accepts_gzip = "gzip" in request.headers.get("Accept-Encoding", "")
    if accepts_gzip and isinstance(response.body, bytes) and len(response.body) > _LEAST_COMPRESSED:
        response.enable_compression(web.ContentCoding.gzip)
    return response


def _error_response(request: web.BaseRequest, refusal: StatusError) -> web.StreamResponse:
    if refusal.page:
        return web.Response(text=refusal.page, status=refusal.code, headers={"X-Content-Type-Options": "nosniff"})
    response = _response(ApiResponse(orjson.dumps(refusal.status()), refusal.code, refusal.warnings))
    seconds = (refusal.details or {}).get("retryAfterSeconds")
    if seconds:
        response.headers["Retry-After"] = str(seconds)
    return _as_preferred(request, response) if refusal.reason != "NotAcceptable" else response


def _as_preferred(request: web.BaseRequest, response: web.StreamResponse) -> web.StreamResponse:
    """Convert an answer to YAML if the client prefers YAML."""
    if not encoding.likes_yaml(client_guard.header(request, "Accept")) or not isinstance(response, web.Response):
        return response
    if isinstance(response.body, bytes) and response.content_type == "application/json":
        response.body = encoding.as_yaml(response.body)
        response.content_type = encoding.YAML
    return response


def _response(answer: ApiResponse) -> web.Response:
    response = _bytes(answer.body, answer.code)
    for warning in answer.warnings:
        response.headers.add("Warning", _WARNING.format(warning.replace("\\", "\\\\").replace('"', '\\"')))
    return response


@contextlib.contextmanager
def running(layout: Layout, host: str = "127.0.0.1", port: int = 0) -> Iterator[ApiServer]:
    """Run a server in a thread of its own for the duration of the block."""
    server = ApiServer(layout, host, port)
    loop = asyncio.new_event_loop()
    try:
        loop.run_until_complete(server.start())
        thread = threading.Thread(target=loop.run_forever, name="apiserver")
        thread.start()
        try:
            yield server
        finally:
            try:
                asyncio.run_coroutine_threadsafe(server.stop(), loop).result(30)
            finally:
                loop.call_soon_threadsafe(loop.stop)
                thread.join()
    finally:
        loop.close()


async def _serve(layout: Layout, port: int) -> None:
    server = ApiServer(layout, port=port)
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    await server.start()
    gc_tuning.freeze_objects()
    print(f"API server ready at {server.url}, kubeconfig {server.kubeconfig}", flush=True)
    await stopped.wait()
    await server.stop()


def main() -> None:
    """Serve until SIGTERM or SIGINT; exit with code 1 and one line of text if the server cannot start."""
    parser = argparse.ArgumentParser(
        prog="python -m embedded.apiserver.api_server", description="Embedded Kubernetes API."
    )
    parser.add_argument("--data", type=Path, required=True, help="folder of the cluster's files")
    parser.add_argument("--port", type=int, default=0, help="port on 127.0.0.1; 0 takes a free one")
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    raise_limit()
    gc_tuning.reduce_collections()
    threads.exit_on_thread_failure()
    try:
        asyncio.run(_serve(Layout(arguments.data), arguments.port))
    except (PortInUse, DiskFailed, StatusError, OSError) as error:  # StatusError: no room for the first objects
        sys.exit(str(error))


if __name__ == "__main__":
    main()
