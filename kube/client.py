"""The client of a Kubernetes API, on the official client's configuration, authentication, TLS and connection pool.

One rule: this module and `kube.official` alone use `kubernetes`, and they use none of its models. The models cost forty
times the parsing of raw JSON, and they silently drop the fields they do not know.
"""

import logging
import os
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import urllib3
import yaml
from urllib3.exceptions import InsecureRequestWarning

from crds.api_resources import Resource
from kube import errors, hosts, pages, requests, streams
from kube.api import Listing, Manifest, Patch, WatchEvent
from kube.official import authorization, kubeconfig, parts
from kube.process.meter import NO_METER, Meter
from kube.process.server_time import ServerTime
from kube.settings import ConnectionSettings
from kube.streams import LogStreams, Stream
from kube.transport import Transport

logger = logging.getLogger(__name__)

DEFAULT_KUBECONFIG = "~/.kube/config"
IN_CLUSTER = "KUBERNETES_SERVICE_HOST"
POD_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")

_LIST_RESTARTS = 2
"""How often a list with expired pages begins again. The last time, one page has the whole list."""
_OF_SERVER = (
    "host",
    "verify_ssl",
    "ssl_ca_cert",
    "assert_hostname",
    "tls_server_name",
    "proxy",
    "no_proxy",
    "proxy_headers",
)
"""What a configuration says about the server, apart from the credentials for it."""
_WATCH_GRACE_SECONDS = 15
"""The time that a server has to end a watch after the planned end. A watch that is silent for longer has failed."""


def connect(settings: ConnectionSettings | None = None, meter: Meter = NO_METER) -> "KubernetesCluster":
    """Return the cluster that `settings` name, without a request. Raise Misconfigured if none is usable. `meter` counts
    the requests.

    Each process calls this function for itself, after a fork: processes cannot share connections.
    """
    settings = settings or ConnectionSettings()
    configuration = _configuration(settings)
    configuration.connection_pool_maxsize = settings.pool_connections
    configuration.keep_alive = True
    server, pool = _pool(configuration)
    header = authorization.Authorization(configuration, kubeconfig.forget)
    return KubernetesCluster(Transport(pool, server, header, settings, meter, header.refuse), settings)


def connect_others(settings: ConnectionSettings, meter: Meter = NO_METER) -> Callable[[str], "KubernetesCluster"]:
    """Return a function that returns the same server as the owner of a token sees it. Raise Misconfigured.

    Nothing of the credentials of this process goes with such a token. All of these clients share connections.
    """
    given, configuration = _configuration(settings), parts.Configuration()
    for name in _OF_SERVER:
        setattr(configuration, name, getattr(given, name))
    configuration.connection_pool_maxsize = settings.pool_connections
    configuration.keep_alive = True
    server, pool = _pool(configuration)

    def connect_as(token: str) -> KubernetesCluster:
        return KubernetesCluster(Transport(pool, server, lambda: f"Bearer {token}", settings, meter), settings)

    return connect_as


def _pool(configuration: Any) -> tuple[str, urllib3.PoolManager]:
    """Return the URL of the server and connections to it. Raise Misconfigured."""
    server = configuration.host.rstrip("/")
    _bypass_proxy_for_loopback(configuration, server)
    if not configuration.verify_ssl:
        logger.warning("the certificate of %s is not verified: insecure-skip-tls-verify in the kubeconfig", server)
        urllib3.disable_warnings(InsecureRequestWarning)
    try:
        return server, parts.rest.RESTClientObject(configuration).pool_manager
    except (OSError, ValueError) as e:
        raise errors.Misconfigured(f"the TLS settings for {server} are not usable: {e}; check the kubeconfig") from e


def default_namespace(settings: ConnectionSettings) -> str:
    """Return the namespace of the kubeconfig's context, or of this pod; `default` if neither names a namespace.
    Raise Misconfigured if there is no configuration."""
    path = settings.kubeconfig or os.environ.get("KUBECONFIG", "")
    if not path and os.environ.get(IN_CLUSTER) and POD_NAMESPACE.exists():
        return POD_NAMESPACE.read_text(encoding="utf-8").strip()
    if not (path or settings.context or Path(os.path.expanduser(DEFAULT_KUBECONFIG)).exists()):
        raise _not_configured()
    return _read_entry(path, settings.context, lambda entry: entry["context"].get("namespace") or "default")


def context_user(settings: ConnectionSettings) -> str:
    """Return the user of the kubeconfig's context; empty without a user. Raise Misconfigured if the kubeconfig is
    unusable.
    """
    return _read_selected(settings, lambda entry: entry["context"].get("user"))


def context_name(settings: ConnectionSettings) -> str:
    """Return the name of the kubeconfig's context; empty without a context. Raise Misconfigured if the kubeconfig is
    unusable.
    """
    return _read_selected(settings, lambda entry: entry["name"])


def _read_selected(settings: ConnectionSettings, read: Callable[[dict[str, Any]], Any]) -> str:
    path = settings.kubeconfig or os.environ.get("KUBECONFIG", "")
    return "" if not path and os.environ.get(IN_CLUSTER) else _read_entry(path, settings.context, read)


def _read_entry(path: str, name: str, read: Callable[[dict[str, Any]], Any]) -> str:
    """Return the value that `read` finds in the entry of a context. Raise Misconfigured if the kubeconfig is
    unusable."""
    found: list[str] = []
    _load(lambda: found.append(str(read(kubeconfig.entry(path or DEFAULT_KUBECONFIG, name)) or "")), path)
    return found[0]


class KubernetesCluster(LogStreams):
    """`kube.api.Cluster` over HTTP; safe to share between threads.

    A request without an answer is sent again if that is safe (kube.retries). A create may therefore raise
    AlreadyExists for the object that it created itself, and a delete NotFound for the object that it deleted itself.
    Both errors are harmless with names and uids that identify the object.
    """

    @property
    def server(self) -> str:
        """The API server's URL."""
        return self._transport.server

    @property
    def server_time(self) -> ServerTime:
        """The time of the API server."""
        return self._transport.server_time

    def serves(self, resource: Resource) -> bool:
        """Return whether the server serves the resource; a foreign kind is served only where its CRD is installed."""
        try:
            group = self._object(requests.discovery(resource))
        except errors.NotFound:
            return False
        return any(entry.get("name") == resource.plural for entry in group.get("resources") or ())

    def get(self, resource: Resource, name: str, namespace: str = "") -> Manifest:
        """Return one object. Raise NotFound if the object does not exist."""
        return self._object(requests.get(resource, name, namespace))

    def list(
        self, resource: Resource, namespace: str = "", *, label_selector: str = "", field_selector: str = ""
    ) -> Listing:
        """Return all objects of one namespace or of all namespaces. Begin the list again if its next page has
        expired."""
        for restart in range(_LIST_RESTARTS + 1):
            limit = self._settings.page_size if restart < _LIST_RESTARTS else 0
            try:
                listings = [*self._pages(resource, namespace, label_selector, field_selector, limit)]
            except errors.Expired:
                continue
            return Listing([item for page in listings for item in page.items], listings[0].resource_version)
        raise errors.Expired(f"the list of {resource.plural} expired again and again while it was read")

    def pages(self, resource: Resource, namespace: str = "", *, label_selector: str = "") -> Iterator[Listing]:
        """Yield the objects of `list` page by page. Raise Expired once the server no longer remembers the list."""
        return self._pages(resource, namespace, label_selector, "", self._settings.page_size)

    def watch(
        self,
        resource: Resource,
        namespace: str = "",
        *,
        resource_version: str,
        label_selector: str = "",
        timeout_seconds: int = 240,
    ) -> Stream[WatchEvent]:
        """Watch the changes after a resourceVersion, with bookmarks, until the server ends the watch.

        The call or the reading raises Expired if the version is too old, and Unreachable if the connection breaks.
        `close` ends the watch from any thread.
        """
        request = requests.watch(
            resource,
            namespace,
            resource_version=resource_version,
            label_selector=label_selector,
            timeout_seconds=timeout_seconds,
        )
        idle = float(timeout_seconds + _WATCH_GRACE_SECONDS)
        response = self._transport.open(request, first_timeout=self._settings.read_timeout, idle_timeout=idle)
        return Stream(response, streams.events(self._transport.pieces(response), request.action))

    def create(self, resource: Resource, body: Manifest, namespace: str = "", *, dry_run: bool = False) -> Manifest:
        """Create and return an object. Raise Invalid for unknown fields, and AlreadyExists if its name is taken."""
        return self._object(requests.create(resource, body, namespace, dry_run=dry_run))

    def patch(
        self,
        resource: Resource,
        name: str,
        patch: Patch,
        namespace: str = "",
        *,
        subresource: str = "",
        resource_version: str = "",
        dry_run: bool = False,
    ) -> Manifest:
        """Change an object or its subresource. With a resource_version (merge patch only), raise Conflict if the object
        is newer."""
        return self._object(
            requests.patch(
                resource,
                name,
                patch,
                namespace,
                subresource=subresource,
                resource_version=resource_version,
                dry_run=dry_run,
            )
        )

    def delete(
        self,
        resource: Resource,
        name: str,
        namespace: str = "",
        *,
        uid: str = "",
        grace_period_seconds: int | None = None,
        dry_run: bool = False,
    ) -> None:
        """Delete an object, and its dependents in the background. Raise Conflict if the object has another uid."""
        self._transport.send(
            requests.delete(
                resource, name, namespace, uid=uid, grace_period_seconds=grace_period_seconds, dry_run=dry_run
            )
        )

    def service(
        self, namespace: str, name: str, path: str, headers: requests.Headers, patience: float | None = None
    ) -> Any:
        """Return the JSON that a service answers at a path through the API server's proxy, whose form `name` has
        (`protocol:name:port`). The service may take `patience` seconds; None: as long as any answer."""
        return self._transport.send(requests.service(namespace, name, path, headers), patience)

    def account_token(self, namespace: str, account: str, audience: str, seconds: int) -> str:
        """Return a new token of a ServiceAccount, for one audience and a time."""
        return self.issue_token(namespace, account, audience, seconds)[0]

    def issue_token(self, namespace: str, account: str, audience: str, seconds: int) -> tuple[str, str]:
        """Return a new token of a ServiceAccount and the time of its end. An empty audience is the API server."""
        status = self._object(requests.account_token(namespace, account, audience, seconds))["status"]
        return str(status["token"]), str(status["expirationTimestamp"])

    def metrics(self) -> str:
        """Return the metrics of the server in the Prometheus text format, for benchmarks and tests."""
        patience = self._settings.read_timeout
        response = self._transport.open(requests.metrics(), first_timeout=patience, idle_timeout=patience)
        with Stream(response, self._transport.pieces(response)) as pieces:
            return b"".join(pieces).decode()

    def close(self) -> None:
        """Close the idle connections. The reader of an open watch closes the watch itself."""
        self._transport.close()

    def _object(self, request: requests.Request) -> Manifest:
        return self._require_object(self._transport.send(request))

    def _require_object(self, answer: Any) -> Manifest:
        if isinstance(answer, dict):
            return answer
        raise errors.ServerError(f"{self.server} did not answer with an object; is it a Kubernetes API server?")

    def _pages(
        self, resource: Resource, namespace: str, label_selector: str, field_selector: str, limit: int
    ) -> Iterator[Listing]:
        token, most = "", limit
        while True:
            request = requests.page(
                resource,
                namespace,
                label_selector=label_selector,
                field_selector=field_selector,
                limit=limit,
                token=token,
            )
            answer, size = self._transport.page(request, limit)
            if answer is None:
                limit = pages.smaller_limit(limit)
                continue
            limit = pages.next_limit(limit, size, most)
            answer = self._require_object(answer)
            metadata = answer.get("metadata") or {}
            if "items" not in answer or "resourceVersion" not in metadata:
                # Read as an empty list, this answer would look as if every object were deleted.
                raise errors.ServerError(f"{self.server} did not answer with a list; is it a Kubernetes API server?")
            yield Listing(_with_type(resource, answer["items"] or []), metadata["resourceVersion"])
            token = metadata.get("continue") or ""
            if not token:
                return


def _with_type(resource: Resource, items: "list[Manifest]") -> "list[Manifest]":
    """Add apiVersion and kind to the items of a list, which omits both for built-in kinds."""
    for item in items:
        item.setdefault("apiVersion", resource.api_version)
        item.setdefault("kind", resource.kind)
    return items


def _configuration(settings: ConnectionSettings) -> Any:
    """Return the official client's configuration: from the explicit kubeconfig, KUBECONFIG, ~/.kube/config or the pod
    that this process runs in, in that order."""
    configuration = parts.Configuration()
    path = settings.kubeconfig or os.environ.get("KUBECONFIG", "")
    if path or settings.context or Path(os.path.expanduser(DEFAULT_KUBECONFIG)).exists():
        path = path or DEFAULT_KUBECONFIG
        _load(lambda: kubeconfig.load(path, settings.context, configuration), path)
    elif os.environ.get(IN_CLUSTER):
        _load(lambda: parts.config.load_incluster_config(configuration), "the service account of this pod")
    else:
        raise _not_configured()
    return configuration


def _not_configured() -> errors.Misconfigured:
    return errors.Misconfigured(
        f"no Kubernetes configuration was found: give --kubeconfig, set KUBECONFIG, or put a kubeconfig at "
        f"{DEFAULT_KUBECONFIG}; for a cluster on this machine: torchq local up"
    )


def _load(load: Callable[[], None], source: str) -> None:
    """Call the official loader and raise Misconfigured if it fails.

    On a malformed file the loader raises many kinds of errors. The file holds tokens, so no message repeats its text.
    """
    try:
        load()
    except parts.config.ConfigException as e:
        # The loader's messages may end with the wrong entry itself.
        raise errors.Misconfigured(f"cannot use {source}: {str(e).split('{')[0].strip()}") from None
    except (FileNotFoundError, PermissionError) as e:
        raise errors.Misconfigured(f"cannot use {source}: {e}") from e
    except (yaml.YAMLError, OSError, KeyError, TypeError, AttributeError, ValueError) as e:
        raise errors.Misconfigured(f"cannot use {source}: it is not a kubeconfig ({type(e).__name__})") from None


def _bypass_proxy_for_loopback(configuration: Any, server: str) -> None:
    """Bypass the environment's proxy for a loopback address, as Go does; a proxy of the kubeconfig stays."""
    host = urllib.parse.urlsplit(server).hostname or ""
    if configuration.proxy in urllib.request.getproxies().values() and hosts.is_loopback(host):
        configuration.proxy = None
