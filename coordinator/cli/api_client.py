"""Answers about the queues from a coordinator, over its read-only HTTP API.

One rule: whoever has a kubeconfig needs nothing else. The leader's Lease says where it answers; where it says nothing,
the API server's proxy to the coordinator's service is asked.

Nothing secret is sent to the coordinator, and nothing it answers is more than shown.
"""

import http.client
import ipaddress
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any
from urllib.parse import quote, urlsplit

import orjson

from coordinator.cli.session import Session
from coordinator.errors import CoordinatorError
from coordinator.leader.election import API
from coordinator.query.documents import Document
from coordinator.query.queries import IDENTITY, UNKNOWN, NotKnown, Reading, StoreReading, document
from coordinator.rbac.permissions import LEASE, SERVICE
from crds.api_resources import LEASES
from crds.keys import JobKey
from kube import errors
from kube.client import KubernetesCluster
from queues.redis import connection
from queues.storage import stats
from queues.storage.redis_store import RedisStore

SERVICE_NAMESPACE = "torchq-system"
TIMEOUT_SECONDS = 10.0
LARGEST_ANSWER = 64 * 1024 * 1024

Fetch = Callable[[str], Any]
"""The JSON at a path of the API."""


class NoCoordinator(CoordinatorError):
    """A coordinator that was named does not answer."""


class NoneKnown(NoCoordinator):
    """The cluster knows of no coordinator that answers."""


@dataclass(frozen=True, slots=True)
class RemoteReading:
    """`coordinator.query.queries.Reading`, asked of a coordinator."""

    fetch: Fetch

    def queues(self) -> list[Document]:
        """See Reading."""
        return [document(item) for item in document(self.fetch("/v1/queues")).get("items", [])]

    def queue(self, name: str) -> Document:
        """See Reading."""
        return document(self.fetch(f"/v1/queues/{quote(name, safe='')}"))

    def next(self, count: int, *, roomy: bool = False) -> Document:
        """See Reading."""
        return document(self.fetch(f"/v1/next?n={count}&roomy={int(roomy)}"))

    def job(self, key: JobKey) -> Document:
        """See Reading."""
        namespace, name, uid = (quote(part, safe="") for part in (key.namespace, key.name, key.uid))
        return document(self.fetch(f"/v1/jobs/{namespace}/{name}/why?uid={uid}"))

    def status(self) -> Document:
        """See Reading."""
        return document(self.fetch("/v1/status"))


def find(session: Session) -> Reading:
    """Redis where the invocation names one, else the coordinator it names, else the one the cluster knows of."""
    settings = session.settings
    if session.resolved.sources["redis_url"] != "default":
        redis = connection.connect(settings.redis_url, client_name="torchq-reader")
        return StoreReading(RedisStore(redis), lambda: stats.read(redis), settings.rules)
    return RemoteReading(coordinator(session))


def coordinator(session: Session) -> Fetch:
    """The coordinator that the invocation names, else the one the cluster knows of."""
    if session.settings.coordinator:
        return direct(session.settings.coordinator)
    service = proxied(session.cluster)
    try:
        announced = _leader_fetch(session)
    except errors.Forbidden as error:
        announced = _failing(error)
    return _with_fallback(announced, service) if announced else service


def _failing(error: errors.Forbidden) -> Fetch:
    """Where we may not look, nobody answers."""

    def fetch(_path: str) -> Any:
        raise NoCoordinator(str(error)) from error

    return fetch


def _leader_fetch(session: Session) -> Fetch | None:
    """Where the leader says that it answers; None if it says nothing."""
    try:
        lease = session.cluster.get(LEASES, LEASE, session.settings.lease_namespace)
    except errors.NotFound:
        return None
    url = str((lease["metadata"].get("annotations") or {}).get(API, ""))
    return direct(url, str((lease.get("spec") or {}).get("holderIdentity") or "")) if url else None


def _with_fallback(announced: Fetch, service: Fetch) -> Fetch:
    """What is announced may be a port of another machine's: then the service is asked."""

    def fetch(path: str) -> Any:
        try:
            return announced(path)
        except NoCoordinator as first:
            try:
                return service(path)
            except (errors.ClusterError, NoCoordinator):
                raise first from None

    return fetch


def proxied(cluster: KubernetesCluster) -> Fetch:
    """Through the API server, with its permissions."""

    def fetch(path: str) -> Any:
        try:
            return cluster.service(SERVICE_NAMESPACE, SERVICE, path)
        except errors.NotFound as error:
            if str(error).startswith(UNKNOWN):
                raise NotKnown(str(error)) from error
            raise _no_coordinator() from error

    return fetch


def direct(url: str, identity: str = "") -> Fetch:
    """By URL. NoCoordinator for one that is none, and if another process than the one of that identity answers."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise NoCoordinator(f"{url!r} is not the URL of a coordinator, as in http://127.0.0.1:8080")
    opener = urllib.request.build_opener(*([urllib.request.ProxyHandler({})] if _loopback(parts.hostname) else []))

    def fetch(path: str) -> Any:
        try:
            with opener.open(url.rstrip("/") + path, timeout=TIMEOUT_SECONDS) as answer:
                if identity and answer.headers.get(IDENTITY) != identity:
                    raise NoCoordinator(f"what answers at {url} is not the coordinator that leads")
                return orjson.loads(answer.read(LARGEST_ANSWER))
        except urllib.error.HTTPError as error:
            with error:
                raise _error_of(url, error.code, error.read(LARGEST_ANSWER)) from error
        except (OSError, http.client.HTTPException, ValueError) as error:
            reason = getattr(error, "reason", None) or error
            raise NoCoordinator(f"the coordinator at {url} does not answer: {reason}") from error

    return fetch


def _error_of(url: str, code: int, body: bytes) -> CoordinatorError:
    try:
        message = str(document(orjson.loads(body)).get("message"))
    except (ValueError, CoordinatorError):
        return NoCoordinator(f"what answers at {url} is not a torchq coordinator (HTTP status {code})")
    return (
        NotKnown(message) if code == HTTPStatus.NOT_FOUND else CoordinatorError(f"the coordinator at {url}: {message}")
    )


def _loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _no_coordinator() -> NoneKnown:
    return NoneKnown(
        "no coordinator answers questions about the queues: none is named on the Lease, and there is no service "
        f"torchq-coordinator in namespace {SERVICE_NAMESPACE}; start one with --health-port, name one with "
        "--coordinator URL, or name Redis with --redis-url-file"
    )
