"""Sends requests to one API server over kept connections, retries as the policy says, and translates what goes wrong.

One rule: every response is read to its end or closed. One that is not keeps its connection, and the next request pays
for a new TLS handshake (33 instead of 435 requests a second, measured).
"""

import contextlib
import logging
import random
import threading
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import orjson
import urllib3
from urllib3.exceptions import (
    ConnectTimeoutError,
    HTTPError,
    LocationValueError,
    NewConnectionError,
    SSLError,
)
from urllib3.exceptions import TimeoutError as LibraryTimeout

from crds import excerpts
from kube import errors, handshakes, jsontext, pages, retries, status, whole_requests
from kube.limiter import Limiter
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


class Transport:
    """A pool of connections to one API server, shared by any number of threads; not to be used across a fork."""

    def __init__(
        self,
        pool: urllib3.PoolManager,
        server: str,
        authorization: Callable[[], str | None],
        settings: ConnectionSettings,
    ) -> None:
        self.server = server
        whole_requests.use(pool)
        self._pool = pool
        self._direct: tuple[urllib3.HTTPConnectionPool, str] | None = None
        self._authorization = authorization
        self._settings = settings
        self._limiter = Limiter(settings.requests_per_second, settings.burst)
        self._closed = threading.Event()

    def send(self, request: Request) -> Any:
        """The parsed JSON of an answer, after as many attempts as the policy allows; raises `kube.errors` only."""
        body = self._persist(request, lambda: self._attempt(request, self._settings.read_timeout, stream=False)).data
        return self._parsed(body, jsontext.loads)

    def page(self, request: Request, limit: int) -> tuple[Any, int]:
        """The same of a list, of `limit` objects at most (0: of all), and its bytes. None if it holds more than is read
        at once: it is to be asked for with fewer objects (`kube.pages`)."""
        most = pages.MOST_BYTES if limit > 1 else None
        body = self._persist(request, lambda: self._bounded(request, most))
        if most is not None and len(body) > most:
            return None, len(body)
        return self._parsed(body, lambda text: pages.read(text, limit)), len(body)

    def _bounded(self, request: Request, most: int | None) -> bytes:
        """The bytes of an answer, or somewhat more than `most` of them: then nobody reads the rest."""
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

    def _parsed(self, body: bytes, parse: Callable[[bytes], Any]) -> Any:
        try:
            return parse(body)
        except orjson.JSONDecodeError as e:
            said = excerpts.excerpt(body[:200].decode("utf-8", "replace"), 80)
            raise errors.ServerError(
                f"{self.server} did not answer with JSON but {said!r}; is it a Kubernetes API server?"
            ) from e

    def open(self, request: Request, *, first_timeout: float | None, idle_timeout: float | None) -> Response:
        """An answer to be read piece by piece and closed by the caller.

        The server has `first_timeout` seconds to begin it and may then be silent for `idle_timeout`; None is for ever.
        """
        response = self._persist(request, lambda: self._attempt(request, first_timeout, stream=True))
        socket = getattr(getattr(response, "connection", None), "sock", None)
        if socket is not None:
            socket.settimeout(idle_timeout)
        return response

    def pieces(self, response: Response) -> Iterator[bytes]:
        """An open answer's bytes as they come; Unreachable if it breaks off before its end."""
        try:
            while piece := response.read1():
                yield piece
        except (HTTPError, OSError) as e:
            raise self._unreachable(e) from e

    def close(self) -> None:
        """Drop the idle connections and give up waiting between attempts; requests under way end as they end."""
        self._closed.set()
        pools = self._pool.pools
        for key in pools.keys():  # noqa: SIM118 - no mapping: it refuses to be iterated, which would not be thread safe
            with contextlib.suppress(KeyError):
                pools[key].close()
        self._pool.clear()
        self._direct = None

    def _persist(self, request: Request, attempt: Callable[[], T]) -> T:
        count = 1
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
                )
                if wait is not None:
                    logger.debug("attempt %d failed, next in %.2f s: %s", count, wait, e)
                if wait is None or self._closed.wait(wait):
                    raise e.error from e.__cause__
            count += 1

    def _attempt(self, request: Request, read_timeout: float | None, *, stream: bool) -> Response:
        self._closed.wait(self._limiter.reserve())
        try:
            connections, base = self._way()
            response = connections.urlopen(
                request.method,
                base + request.path,
                body=request.body,
                headers=self._headers(request),
                timeout=urllib3.Timeout(connect=self._settings.connect_timeout, read=read_timeout),
                preload_content=not stream,
                redirect=False,
                retries=False,
            )
            if 200 <= response.status < 300:
                return response
            body = response.data
        except (HTTPError, OSError) as e:
            handshakes.close_lost(e)
            self._refuse_misconfiguration(e)
            sent = not isinstance(e, NewConnectionError | ConnectTimeoutError)
            raise _AttemptFailed(Failure(sent=sent), self._unreachable(e)) from e
        said = status.read(body)
        error = status.error(response.status, said, request.action, self._settings.permission_hint)
        raise _AttemptFailed(Failure(response.status, retry_after=_retry_after(response)), error)

    def _way(self) -> tuple[urllib3.PoolManager | urllib3.HTTPConnectionPool, str]:
        """The connections to the server and what each URL begins with there. Those to one server are looked for once;
        to a proxy that stands between, the whole URL may have to be said each time."""
        if self._pool.proxy is not None:
            return self._pool, self.server
        way = self._direct
        if way is None:
            path = urllib3.util.parse_url(self.server).path or ""
            way = self._direct = (self._pool.connection_from_url(self.server), path.rstrip("/"))
        return way

    def _headers(self, request: Request) -> dict[str, str]:
        headers = {"Accept": "application/json", "User-Agent": self._settings.user_agent}
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

    def _refuse_misconfiguration(self, cause: Exception) -> None:
        """What no attempt can cure is raised at once."""
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


def _retry_after(response: Response) -> float | None:
    return retries.retry_after(response.headers.get("Retry-After"))


def _reason(cause: BaseException) -> str:
    """The system's own words for a failure, from under the HTTP library's wrappings."""
    chain = [cause]
    while (below := chain[-1].__cause__ or chain[-1].__context__) is not None:
        chain.append(below)
    for error in chain:
        if isinstance(error, OSError) and error.strerror:
            return error.strerror
    if any(isinstance(error, TimeoutError | LibraryTimeout) for error in chain):
        return "timed out"
    return str(chain[-1])
