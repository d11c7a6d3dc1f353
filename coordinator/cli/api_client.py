"""The client of the read-only HTTP APIs: of a coordinator about the queues, and of a recorder about the history.

One rule: a kubeconfig is enough. The Lease of the leader, or of the recorder, has its URL, or its Service, to which the
API server is a proxy.

The client sends nothing secret to them but a token that no other server takes (`coordinator.access`), and uses an
answer for output only.
"""

import http.client
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from functools import partial
from http import HTTPStatus
from typing import Any, TypeVar
from urllib.parse import urlsplit

import orjson

from coordinator.cache import own_installation
from coordinator.cli import lazy_group
from coordinator.cli.lazy_group import USER_ERRORS
from coordinator.cli.session import Session
from coordinator.errors import CoordinatorError
from coordinator.lease_settings import API_ANNOTATION, SERVICE_ANNOTATION
from coordinator.port_settings import ServiceName
from coordinator.query.questions import (
    IDENTITY,
    UNKNOWN_PREFIX,
    Document,
    Queries,
    UnknownObject,
    parse_document,
    unknown_reports,
)
from coordinator.query.remote_queries import (
    Fetch,
    NoCoordinator,
    NoCoordinatorKnown,
    NoRecorder,
    RemoteQueries,
    Withheld,
)
from coordinator.rbac.permissions import LEASE, RECORDER_LEASE, proxied
from crds.api_resources import LEASES
from crds.keys import JobKey
from kube import errors, hosts
from kube.api import Manifest
from kube.client import KubernetesCluster
from queues.installation import Installation

T = TypeVar("T")
DIRECT = "coordinator.query.queries:connect"
COORDINATOR, RECORDER = "coordinator", "recorder"
"""The kinds of processes that answer."""
TIMEOUT_SECONDS = 10.0
RECORDER_SECONDS = 60.0
"""How long a command waits for a recorder, which may add up a year on a database that has much else to do."""
LARGEST_ANSWER = 64 * 1024 * 1024

Headers = Callable[[str], Mapping[str, str]]
"""The headers of a question about a namespace, or about none: the token of an account of the user."""


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


def reports_of(session: Session, key: JobKey) -> Document:
    """Return the reports of a job's pods, or why they are not known."""
    return ask(session, lambda queries: queries.reports(key), unknown_reports)


def _installation(session: Session) -> Installation | None:
    """Return the installation of the cluster; None if this account may not read its name."""
    try:
        return own_installation.read(session.cluster, session.settings.lease_namespace)
    except errors.ClusterError:
        return None


def coordinator(session: Session) -> Fetch:
    """Return access to the coordinator that the invocation names, else to the coordinator that the cluster names."""
    own = session.settings.service_name
    if session.settings.coordinator:
        return via_url(session.settings.coordinator, headers=partial(session.shown_tokens.headers, own.namespace))
    try:
        url, holder, service_name = _announced(session)
    except errors.Forbidden as error:
        headers = partial(session.shown_tokens.headers, own.namespace)
        return _with_fallback(_failing(error), via_api_server(session.cluster, own, headers))
    is_chosen = session.resolved_settings.sources["service"] != "default"
    named = own if is_chosen else service_name or own
    headers = partial(session.shown_tokens.headers, named.namespace)
    service = via_api_server(session.cluster, named, headers)
    return _with_fallback(via_url(url, holder, headers), service) if url else service


def announced_service(session: Session) -> ServiceName | None:
    """Return the Service of coordinators that run in pods, as the leader's Lease says; None if it does not."""
    try:
        return _announced(session)[2]
    except errors.ClusterError:
        return None


def _failing(error: errors.Forbidden) -> Fetch:
    """Return a Fetch that always fails, for a Lease that this account may not read."""

    def fetch(path: str, namespace: str = "") -> Any:  # noqa: ARG001
        raise NoCoordinator(str(error)) from error

    return fetch


def _announced(session: Session) -> tuple[str, str, ServiceName | None]:
    """Return the URL of the leader's API, the leader, and its Service, as far as its Lease names them; a Service that
    is not readable counts as none."""
    try:
        lease = session.cluster.get(LEASES, LEASE, session.settings.lease_namespace)
    except errors.NotFound:
        return "", "", None
    holder = str((lease.get("spec") or {}).get("holderIdentity") or "")
    url, service = _places(lease)
    return url, holder, service


def _places(lease: Manifest) -> tuple[str, ServiceName | None]:
    """Return the URL and the Service that a Lease names."""
    notes = lease["metadata"].get("annotations") or {}
    try:
        service = ServiceName.parse(str(notes.get(SERVICE_ANNOTATION, "")))
    except ValueError:
        service = None
    return str(notes.get(API_ANNOTATION, "")), service


def recorder(session: Session) -> Fetch:
    """Return access to the recorder that the cluster names. Raises NoRecorder if it names none, and ClusterError."""
    namespace = session.settings.lease_namespace
    try:
        lease = session.cluster.get(LEASES, RECORDER_LEASE, namespace)
    except errors.NotFound as error:
        raise NoRecorder(
            f"no recorder keeps the history of this cluster (namespace {namespace} has no Lease {RECORDER_LEASE}): an "
            "admin starts one with the value recorder.enabled of the chart (docs/history.md)"
        ) from error
    url, service = _places(lease)
    if not url and service is None:
        raise NoRecorder(
            f"the Lease {namespace}/{RECORDER_LEASE} does not say where the recorder answers: its health_port is 0"
        )
    home = service.namespace if service else session.settings.service_name.namespace
    headers = partial(session.shown_tokens.headers, home)
    access = (
        _recorder_service(session.cluster, service, headers)
        if service
        else via_url(url, "", headers, RECORDER, RECORDER_SECONDS)
    )

    def fetch(path: str, namespace: str = "") -> Any:
        try:
            return access(path, namespace)
        except UnknownObject as error:
            if str(error).startswith(f"{UNKNOWN_PREFIX}/v1/"):
                raise NoRecorder(f"the recorder is of an older version and does not answer this ({error})") from error
            raise
        except errors.ServerError as error:  # no pod of the recorder is ready, or its database does not answer
            raise NoRecorder(f"the recorder does not answer now, and jobs do not need it: {error}") from error

    return fetch


def _recorder_service(cluster: KubernetesCluster, service: ServiceName, headers: Headers) -> Fetch:
    """Return access to the recorders' Service through the API server."""
    gone = (
        f"no recorder answers: namespace {service.namespace} has no service {service.name}, which the Lease "
        f"{RECORDER_LEASE} names; an admin starts a recorder with the value recorder.enabled of the chart, or deletes "
        "this Lease"
    )
    return _via_proxy(cluster, service, headers, NoRecorder(gone), RECORDER_SECONDS)


def _with_fallback(announced: Fetch, service: Fetch) -> Fetch:
    """Return a Fetch that uses the service if the Lease's URL does not answer, for example because only another machine
    can reach its port."""

    def fetch(path: str, namespace: str = "") -> Any:
        try:
            return announced(path, namespace)
        except NoCoordinator as first:
            try:
                return service(path, namespace)
            except (errors.ClusterError, NoCoordinator):
                raise first from None

    return fetch


def no_headers(_namespace: str) -> Mapping[str, str]:
    """Return the headers of a question without a token."""
    return {}


def via_api_server(cluster: KubernetesCluster, service: ServiceName, headers: Headers = no_headers) -> Fetch:
    """Return access to the coordinator's service through the API server."""
    unknown = (
        "no coordinator answers questions about the queues: the Lease names no URL, and namespace "
        f"{service.namespace} has no service {service.name}; start a coordinator with --health-port, name its service "
        "with TORCHQ_SERVICE=NAMESPACE/NAME or its URL with --coordinator, or name Redis with --redis-url-file"
    )
    return _via_proxy(cluster, service, headers, NoCoordinatorKnown(unknown))


def _via_proxy(
    cluster: KubernetesCluster,
    service: ServiceName,
    headers: Headers,
    missing: CoordinatorError,
    patience: float | None = None,
) -> Fetch:
    """Return access to a service through the API server; `missing` is the error for a service that is not there."""

    def fetch(path: str, namespace: str = "") -> Any:
        try:
            return cluster.service(service.namespace, proxied(service.name), path, headers(namespace), patience)
        except errors.NotFound as error:
            if str(error).startswith(UNKNOWN_PREFIX):
                raise UnknownObject(str(error)) from error
            raise missing from error

    return fetch


def via_url(
    url: str,
    identity: str = "",
    headers: Headers = no_headers,
    kind: str = COORDINATOR,
    patience: float = TIMEOUT_SECONDS,
) -> Fetch:
    """Return access to a coordinator, or a process of another kind, by URL. It may take `patience` seconds to answer.

    Raises NoCoordinator for an invalid URL, and if a process with another identity answers.
    """
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise NoCoordinator(f"{url!r} is not the URL of a {kind}, as in http://127.0.0.1:8080")
    handlers = [urllib.request.ProxyHandler({})] if hosts.is_loopback(parts.hostname) else []
    opener = urllib.request.build_opener(*handlers)

    def fetch(path: str, namespace: str = "") -> Any:
        try:
            request = urllib.request.Request(url.rstrip("/") + path, headers=dict(headers(namespace)))
            with opener.open(request, timeout=patience) as answer:
                if identity and answer.headers.get(IDENTITY) != identity:
                    raise NoCoordinator(f"the process at {url} is not the coordinator that leads")
                return orjson.loads(answer.read(LARGEST_ANSWER))
        except urllib.error.HTTPError as error:
            with error:
                raise _error_of(kind, url, error.code, error.read(LARGEST_ANSWER)) from error
        except (OSError, http.client.HTTPException, ValueError) as error:
            reason = getattr(error, "reason", None) or error
            raise NoCoordinator(f"the {kind} at {url} does not answer: {reason}") from error

    return fetch


def _error_of(kind: str, url: str, code: int, body: bytes) -> CoordinatorError:
    try:
        message = str(parse_document(orjson.loads(body)).get("message"))
    except (ValueError, CoordinatorError):
        return NoCoordinator(f"the server at {url} is not a torchq {kind} (HTTP status {code})")
    if code == HTTPStatus.NOT_FOUND:
        return UnknownObject(message)
    is_refused = code in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)
    return (Withheld if is_refused else CoordinatorError)(f"the {kind} at {url}: {message}")
