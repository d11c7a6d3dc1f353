"""The client of a coordinator's read-only HTTP API, which answers questions about the queues.

One rule: a kubeconfig is enough. The leader's Lease has the coordinator's URL, or its Service, to which the API server
is a proxy.

The client sends no secret to the coordinator, and uses an answer for output only.
"""

import http.client
import urllib.error
import urllib.request
from collections.abc import Callable, Collection
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, TypeVar
from urllib.parse import quote, urlsplit

import orjson

from coordinator.cache import own_installation
from coordinator.cli import lazy_group
from coordinator.cli.lazy_group import USER_ERRORS
from coordinator.cli.session import Session
from coordinator.errors import CoordinatorError
from coordinator.leader.election import API_ANNOTATION, SERVICE_ANNOTATION
from coordinator.port_settings import ServiceName
from coordinator.query.questions import IDENTITY, UNKNOWN_PREFIX, Document, Queries, UnknownObject, parse_document
from coordinator.rbac.permissions import LEASE, proxied
from crds.api_resources import LEASES
from crds.keys import JobKey
from kube import errors, hosts
from kube.client import KubernetesCluster
from queues.installation import Installation

T = TypeVar("T")
DIRECT = "coordinator.query.direct:connect"
TIMEOUT_SECONDS = 10.0
LARGEST_ANSWER = 64 * 1024 * 1024

Fetch = Callable[[str], Any]
"""The JSON at a path of the API."""


class NoCoordinator(CoordinatorError):
    """The coordinator that the user or the cluster names does not answer."""


class NoCoordinatorKnown(NoCoordinator):
    """The cluster names no coordinator that answers."""


@dataclass(frozen=True, slots=True)
class RemoteQueries:
    """Queries about the queues over the read-only HTTP API of a coordinator."""

    fetch: Fetch

    def _get(self, path: str) -> Document:
        return parse_document(self.fetch(f"/v1/{path}"))

    def _of_job(self, key: JobKey, what: str) -> Document:
        namespace, name, uid = (quote(part, safe="") for part in (key.namespace, key.name, key.uid))
        return self._get(f"jobs/{namespace}/{name}/{what}?uid={uid}")

    def queues(self) -> list[Document]:
        """Return all queues with their figures."""
        return [*map(parse_document, self._get("queues").get("items", []))]

    def queue(self, name: str) -> Document:
        """Return one queue with its figures."""
        return self._get(f"queues/{quote(name, safe='')}")

    def next(self, count: int, *, roomy: bool = False) -> Document:
        """Return the next picks; with `roomy`, as if the pool had room for all jobs."""
        return self._get(f"next?n={count}&roomy={int(roomy)}")

    def places(self, queues: Collection[str]) -> list[Document]:
        """Return the places of the first waiting jobs of some queues."""
        names = quote(",".join(sorted(queues)), safe=",")
        return [*map(parse_document, self._get(f"places?queues={names}")["items"])]

    def job(self, key: JobKey) -> Document:
        """Return the position of a job, or why it is not in the order."""
        return self._of_job(key, "why")

    def reports(self, key: JobKey) -> Document:
        """Return the reports of the pods of a job."""
        return self._of_job(key, "report")

    def status(self) -> Document:
        """Return the numbers of the coordinator, the workers and the queues."""
        return self._get("status")


def find(session: Session) -> Queries:
    """Return the source of queries for an invocation: the Redis that it names, else the coordinator that it names, else
    the cluster's coordinator."""
    settings = session.settings
    if session.resolved_settings.sources["redis_url"] != "default":
        # Few commands read Redis themselves. The others need not wait until its client is imported.
        direct: Queries = lazy_group.find(DIRECT)(settings.redis, settings.rules, lambda: _installation(session))
        return direct
    return RemoteQueries(coordinator(session))


def ask(session: Session, question: Callable[[Queries], T], otherwise: Callable[[Exception], T]) -> T:
    """Return the answer to a question about the queues, or, if no coordinator answers, the result of `otherwise` for
    the error.
    """
    try:
        return question(find(session))
    except USER_ERRORS as error:
        return otherwise(error)


def _installation(session: Session) -> Installation | None:
    """Return the installation of the cluster; None if this account may not read its name."""
    try:
        return own_installation.read(session.cluster, session.settings.lease_namespace)
    except errors.ClusterError:
        return None


def coordinator(session: Session) -> Fetch:
    """Return access to the coordinator that the invocation names, else to the coordinator that the cluster names."""
    if session.settings.coordinator:
        return via_url(session.settings.coordinator)
    own = session.settings.service_name
    try:
        announced, service_name = _announced(session)
    except errors.Forbidden as error:
        return _with_fallback(_failing(error), via_api_server(session.cluster, own))
    is_chosen = session.resolved_settings.sources["service"] != "default"
    service = via_api_server(session.cluster, own if is_chosen else service_name or own)
    return _with_fallback(announced, service) if announced else service


def announced_service(session: Session) -> ServiceName | None:
    """Return the Service of coordinators that run in pods, as the leader's Lease says; None if it does not."""
    try:
        return _announced(session)[1]
    except errors.ClusterError:
        return None


def _failing(error: errors.Forbidden) -> Fetch:
    """Return a Fetch that always fails, for a Lease that this account may not read."""

    def fetch(_path: str) -> Any:
        raise NoCoordinator(str(error)) from error

    return fetch


def _announced(session: Session) -> tuple[Fetch | None, ServiceName | None]:
    """Return access to the URL and the Service of the leader's API, as far as its Lease names them; a Service that is
    not readable counts as none."""
    try:
        lease = session.cluster.get(LEASES, LEASE, session.settings.lease_namespace)
    except errors.NotFound:
        return None, None
    notes = lease["metadata"].get("annotations") or {}
    url = str(notes.get(API_ANNOTATION, ""))
    holder = str((lease.get("spec") or {}).get("holderIdentity") or "")
    try:
        service = ServiceName.parse(str(notes.get(SERVICE_ANNOTATION, "")))
    except ValueError:
        service = None
    return via_url(url, holder) if url else None, service


def _with_fallback(announced: Fetch, service: Fetch) -> Fetch:
    """Return a Fetch that uses the service if the Lease's URL does not answer, for example because only another machine
    can reach its port."""

    def fetch(path: str) -> Any:
        try:
            return announced(path)
        except NoCoordinator as first:
            try:
                return service(path)
            except (errors.ClusterError, NoCoordinator):
                raise first from None

    return fetch


def via_api_server(cluster: KubernetesCluster, service: ServiceName) -> Fetch:
    """Return access to the coordinator's service through the API server."""

    def fetch(path: str) -> Any:
        try:
            return cluster.service(service.namespace, proxied(service.name), path)
        except errors.NotFound as error:
            if str(error).startswith(UNKNOWN_PREFIX):
                raise UnknownObject(str(error)) from error
            raise NoCoordinatorKnown(
                "no coordinator answers questions about the queues: the Lease names no URL, and namespace "
                f"{service.namespace} has no service {service.name}; start a coordinator with --health-port, name its "
                "service with TORCHQ_SERVICE=NAMESPACE/NAME or its URL with --coordinator, or name Redis with "
                "--redis-url-file"
            ) from error

    return fetch


def via_url(url: str, identity: str = "") -> Fetch:
    """Return access to a coordinator by URL.

    Raises NoCoordinator for an invalid URL, and if a process with another identity answers.
    """
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise NoCoordinator(f"{url!r} is not the URL of a coordinator, as in http://127.0.0.1:8080")
    handlers = [urllib.request.ProxyHandler({})] if hosts.is_loopback(parts.hostname) else []
    opener = urllib.request.build_opener(*handlers)

    def fetch(path: str) -> Any:
        try:
            with opener.open(url.rstrip("/") + path, timeout=TIMEOUT_SECONDS) as answer:
                if identity and answer.headers.get(IDENTITY) != identity:
                    raise NoCoordinator(f"the process at {url} is not the coordinator that leads")
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
        message = str(parse_document(orjson.loads(body)).get("message"))
    except (ValueError, CoordinatorError):
        return NoCoordinator(f"the server at {url} is not a torchq coordinator (HTTP status {code})")
    is_unknown = code == HTTPStatus.NOT_FOUND
    return UnknownObject(message) if is_unknown else CoordinatorError(f"the coordinator at {url}: {message}")
