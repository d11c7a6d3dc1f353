"""Sends requests to one API server over persistent connections, retries them by the policy, and translates the errors.

One rule: every response is read to its end or closed. An unfinished response keeps its connection, and the next request
pays for a new TLS handshake (33 instead of 435 requests a second, measured).
"""

import contextlib
import logging
import math
import random
import threading
import time
from collections.abc import Callable, Iterator
from http import HTTPStatus
from typing import Any, TypeVar

import orjson
import urllib3
from urllib3.exceptions import (
    ConnectTimeoutError,
    HTTPError,
    LocationValueError,
    NewConnectionError,
    ProtocolError,
    SSLError,
)
from urllib3.exceptions import TimeoutError as LibraryTimeout

from crds import excerpts
from kube import error_answers, errors, handshakes, jsontext, pages, retries, whole_requests
from kube.process import request_metrics, turns
from kube.process.meter import NO_METER, Meter
from kube.process.server_time import ServerTime
from kube.requests import Request
from kube.retries import Failure
from kube.settings import ConnectionSettings

logger = logging.getLogger(__name__)

T = TypeVar("T")

Response = urllib3.BaseHTTPResponse


class _AttemptFailed(Exception):
    """One attempt failed; the policy decides whether it was the last."""

    def __init__(self, failure: Failure, error: errors.ClusterError) -> None:
        super().__init__(str(error))
        self.failure = failure
        self.error = error


class Limiter:
    """A limit on our own requests, as a token bucket: `burst` at once, `rate` per second in the long run.

    A rate of 0 means no limit. The limiter only returns how long to wait; the caller waits.
    """

    def __init__(self, rate: float, burst: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._interval = 1 / rate if rate > 0 else 0.0
        self._burst = burst
        self._clock = clock
        self._lock = threading.Lock()
        self._next = -math.inf
        """The time at which the next request would go out if all requests had been evenly spaced."""

    def reserve(self) -> float:
        """Reserve the next place and return the seconds until it; 0 while the burst lasts."""
        if not self._interval:
            return 0.0
        with self._lock:
            now = self._clock()
            place = max(self._next, now - (self._burst - 1) * self._interval)
            self._next = place + self._interval
            return max(0.0, place - now)


class Transport:
    """A pool of connections to one API server. Any number of threads share the pool; a forked process must not."""

    def __init__(
        self,
        pool: urllib3.PoolManager,
        server: str,
        authorization: Callable[[], str | None],
        settings: ConnectionSettings,
        meter: Meter = NO_METER,
        refused: Callable[[], object] = lambda: None,
    ) -> None:
        """`authorization` returns the header of a request; `refused` is called when the server does not accept it."""
        self.server = server
        self._refused = refused
        self._meter = meter
        self.server_time = ServerTime()
        whole_requests.use(pool)
        self._pool = pool
        self._direct: tuple[urllib3.HTTPConnectionPool, str] | None = None
        self._authorization = authorization
        self._settings = settings
        self._limiter = Limiter(settings.requests_per_second, settings.burst)
        self._closed = threading.Event()
        self._waits_for = f"the API server {server}"
        """What the loop of a thread waits for during a request, which its own time limits end."""

    def send(self, request: Request, patience: float | None = None) -> Any:
        """Return the parsed JSON of an answer, after the attempts that the policy allows. Raise any ClusterError.

        The server may be silent for `patience` seconds; None: for as long as the settings say.
        """
        seconds = self._settings.read_timeout if patience is None else patience
        body = self._persist(request, lambda: self._attempt(request, seconds, stream=False)).data
        return self._parse(body, jsontext.loads)

    def page(self, request: Request, limit: int) -> tuple[Any, int]:
        """Return a parsed list of at most `limit` objects (0: of all objects), and the number of its bytes.

        The list is None if it is too large to be parsed at once; request it with fewer objects (`kube.pages`).
        """
        most = pages.MOST_BYTES if limit > 1 else None
        body = self._persist(request, lambda: self._read_at_most(request, most))
        if most is not None and len(body) > most:
            return None, len(body)
        return self._parse(body, lambda text: pages.read(text, limit)), len(body)

    def _read_at_most(self, request: Request, most: int | None) -> bytes:
        """Return the bytes of an answer. Of an answer of more than `most` bytes, return one byte more than `most` and
        close the connection."""
        if most is None:
            return self._attempt(request, self._settings.read_timeout, stream=False).data
        response = self._attempt(request, self._settings.read_timeout, stream=True)
        try:
            body = response.read(most + 1)
        except (HTTPError, OSError) as e:
            response.close()
            raise _AttemptFailed(Failure(sent=True), self._unreachable(e)) from e
        if len(body) > most:
            response.close()
        response.release_conn()
        return body

    def _parse(self, body: bytes, parse: Callable[[bytes], Any]) -> Any:
        try:
            return parse(body)
        except orjson.JSONDecodeError as e:
            excerpt = excerpts.excerpt(body[:200].decode("utf-8", "replace"), 80)
            raise errors.ServerError(
                f"{self.server} did not answer with JSON but {excerpt!r}; is it a Kubernetes API server?"
            ) from e

    def open(self, request: Request, *, first_timeout: float | None, idle_timeout: float | None) -> Response:
        """Return an answer that the caller reads piece by piece and closes.

        The server has `first_timeout` seconds to begin the answer and may then be silent for `idle_timeout` seconds;
        None means no limit.
        """
        response = self._persist(request, lambda: self._attempt(request, first_timeout, stream=True))
        socket = getattr(getattr(response, "connection", None), "sock", None)
        if socket is not None:
            socket.settimeout(idle_timeout)
        return response

    def pieces(self, response: Response) -> Iterator[bytes]:
        """Yield the bytes of an open answer as they come. Raise Unreachable if the connection breaks before its end."""
        try:
            while piece := self._read_on(response):
                yield piece
        except (HTTPError, OSError) as e:
            raise self._unreachable(e) from e

    def _read_on(self, response: Response) -> bytes:
        with turns.current().waiting(self._waits_for):
            return response.read1()

    def close(self) -> None:
        """Close the idle connections and end the waits between attempts. Requests in progress are not interrupted."""
        self._closed.set()
        pools = self._pool.pools
        for key in pools.keys():  # noqa: SIM118 - not a mapping: it forbids iteration, which would not be thread safe
            with contextlib.suppress(KeyError):
                pools[key].close()
        self._pool.clear()
        self._direct = None

    def _persist(self, request: Request, attempt: Callable[[], T]) -> T:
        with turns.current().waiting(self._waits_for):
            return self._try_again(request, attempt)

    def _try_again(self, request: Request, attempt: Callable[[], T]) -> T:
        count, began = 1, time.monotonic()
        while True:
            try:
                return attempt()
            except _AttemptFailed as e:
                wait = retries.wait(
                    self._settings.retries,
                    e.failure,
                    attempt=count,
                    repeatable=request.repeatable,
                    jitter=random.random(),
                    elapsed=time.monotonic() - began,
                )
                if wait is not None:
                    logger.debug("attempt %d failed, next in %.2f s: %s", count, wait, e)
                if wait is None or self._closed.wait(wait):
                    raise e.error from e.__cause__
            count += 1

    def _attempt(self, request: Request, read_timeout: float | None, *, stream: bool) -> Response:
        self._closed.wait(self._limiter.reserve())
        try:
            response = self._metered(request, read_timeout, stream=stream)
            self.server_time.note(response.headers.get("Date"))
            if 200 <= response.status < 300:
                return response
            body = response.data
        except (HTTPError, OSError) as e:
            handshakes.close_lost(e)
            self._raise_if_misconfigured(e)
            sent = not isinstance(e, NewConnectionError | ConnectTimeoutError)
            raise _AttemptFailed(Failure(sent=sent), self._unreachable(e)) from e
        if response.status == HTTPStatus.UNAUTHORIZED:
            self._refused()
        details = error_answers.read(body)
        error = error_answers.error(response.status, details, request.action, self._settings.permission_hint)
        retry_after = retries.retry_after(response.headers.get("Retry-After"))
        raise _AttemptFailed(Failure(response.status, retry_after=retry_after), error)

    def _metered(self, request: Request, read_timeout: float | None, *, stream: bool) -> Response:
        """Send one request, and count how it ended and how long the answer took to begin, or to arrive whole."""
        began, code = time.perf_counter(), request_metrics.NO_ANSWER
        try:
            connections, base = self._route()
            response: Response = connections.urlopen(
                request.method,
                base + request.path,
                body=request.body,
                headers=self._headers(request),
                timeout=urllib3.Timeout(connect=self._settings.connect_timeout, read=read_timeout),
                preload_content=not stream,
                redirect=False,
                retries=False,
            )
            code = str(response.status)
            return response
        finally:
            self._meter.count(request_metrics.REQUESTS, code, request.method)
            self._meter.observe(request_metrics.REQUEST_SECONDS, time.perf_counter() - began, request.method)

    def _route(self) -> tuple[urllib3.PoolManager | urllib3.HTTPConnectionPool, str]:
        """Return the connections to the server and the prefix of each URL.

        The pool of a direct connection is looked up once. A proxy may need the whole URL in each request.
        """
        if self._pool.proxy is not None:
            return self._pool, self.server
        route = self._direct
        if route is None:
            path = urllib3.util.parse_url(self.server).path or ""
            route = self._direct = (self._pool.connection_from_url(self.server), path.rstrip("/"))
        return route

    def _headers(self, request: Request) -> dict[str, str]:
        headers = {**request.headers, "Accept": request.accept, "User-Agent": self._settings.user_agent}
        if request.body is not None:
            headers["Content-Type"] = request.content_type
        if token := self._authorization():
            headers["Authorization"] = token
        return headers

    def _unreachable(self, cause: Exception) -> errors.Unreachable:
        return errors.Unreachable(
            f"the Kubernetes API server {self.server} does not answer: {_reason(cause)}; "
            "check that it runs and that the kubeconfig names it"
        )

    def _raise_if_misconfigured(self, cause: Exception) -> None:
        """Raise Misconfigured for an error that no further attempt can cure."""
        if isinstance(cause, LocationValueError):
            raise errors.Misconfigured(
                f"{self.server!r} is no URL of a server: {cause}; check the kubeconfig"
            ) from cause
        reason = _reason(cause)
        if isinstance(cause, SSLError) and "CERTIFICATE" in reason:
            raise errors.Misconfigured(
                f"the certificate of the Kubernetes API server {self.server} is not trusted: {reason}; "
                "check certificate-authority in the kubeconfig"
            ) from cause


def _reason(cause: BaseException) -> str:
    """Return the system's message for a failure, from below the errors that the HTTP library wraps around it."""
    chain = [cause]
    while (below := chain[-1].__cause__ or chain[-1].__context__) is not None:
        chain.append(below)
    for error in chain:
        if isinstance(error, OSError) and error.strerror:
            return error.strerror
    if any(isinstance(error, TimeoutError | LibraryTimeout) for error in chain):
        return "timed out"
    if any(isinstance(error, ProtocolError) for error in chain):
        return "the connection broke within an answer"
    return str(chain[-1])
