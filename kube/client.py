"""The door to a Kubernetes API, on the official client's configuration, authentication, TLS and connection pool.

One rule: the only module that imports `kubernetes`, and it takes none of its models: they cost forty times the
parsing of raw JSON and silently drop the fields they do not know.
"""

import ipaddress
import logging
import os
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import urllib3
import yaml
from kubernetes import client as official
from kubernetes import config as official_config
from kubernetes.client import rest
from urllib3.exceptions import InsecureRequestWarning

from crds.api_resources import Resource
from kube import errors, pages, requests, streams
from kube.api import Listing, Manifest, Patch, WatchEvent
from kube.settings import ConnectionSettings
from kube.streams import Stream
from kube.transport import Transport

logger = logging.getLogger(__name__)

DEFAULT_KUBECONFIG = "~/.kube/config"
IN_CLUSTER = "KUBERNETES_SERVICE_HOST"
POD_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")

_LIST_RESTARTS = 2
"""How often a list whose pages expired begins again before it is asked for in one piece, which cannot expire."""
_CREDENTIALS_SECONDS = 1.0
"""How long a token is used before the loader is asked for a newer one; loaders renew minutes before expiry."""
_WATCH_GRACE_SECONDS = 15
"""A server ends a watch by itself; one that is silent for so long after that is gone."""


def connect(settings: ConnectionSettings | None = None) -> "KubernetesCluster":
    """A cluster as `settings` name it. Nothing is sent yet. Misconfigured if there is no usable configuration.

    To be called after a fork, by each process for itself: connections cannot be shared between processes.
    """
    settings = settings or ConnectionSettings()
    configuration = _configuration(settings)
    configuration.connection_pool_maxsize = settings.pool_connections
    configuration.keep_alive = True
    server = configuration.host.rstrip("/")
    _spare_loopback(configuration, server)
    if not configuration.verify_ssl:
        logger.warning("the certificate of %s is not verified: insecure-skip-tls-verify in the kubeconfig", server)
        urllib3.disable_warnings(InsecureRequestWarning)
    try:
        pool = rest.RESTClientObject(configuration).pool_manager
    except (OSError, ValueError) as e:
        raise errors.Misconfigured(f"the TLS settings for {server} are not usable: {e}; check the kubeconfig") from e
    return KubernetesCluster(Transport(pool, server, _Authorization(configuration), settings), settings)


def default_namespace(settings: ConnectionSettings) -> str:
    """The namespace that the kubeconfig's context names, or this pod's own; `default` if none does."""
    path = settings.kubeconfig or os.environ.get("KUBECONFIG", "")
    if not path and os.environ.get(IN_CLUSTER) and POD_NAMESPACE.exists():
        return POD_NAMESPACE.read_text(encoding="utf-8").strip()
    found: list[str] = []
    _load(lambda: found.append(_context_namespace(path or DEFAULT_KUBECONFIG, settings.context)), path)
    return found[0]


def context_user(settings: ConnectionSettings) -> str:
    """The name that the kubeconfig's context gives to its user; empty where there is no kubeconfig. Misconfigured."""
    path = settings.kubeconfig or os.environ.get("KUBECONFIG", "")
    if not path and os.environ.get(IN_CLUSTER):
        return ""
    found: list[str] = []
    _load(lambda: found.append(str(_context(path or DEFAULT_KUBECONFIG, settings.context).get("user") or "")), path)
    return found[0]


def context_name(settings: ConnectionSettings) -> str:
    """The name of the kubeconfig's context in use; empty where there is no kubeconfig. Misconfigured."""
    path = settings.kubeconfig or os.environ.get("KUBECONFIG", "")
    if not path and os.environ.get(IN_CLUSTER):
        return ""
    found: list[str] = []
    _load(lambda: found.append(str(_entry(path or DEFAULT_KUBECONFIG, settings.context)["name"])), path)
    return found[0]


def _context_namespace(path: str, name: str) -> str:
    return str(_context(path, name).get("namespace") or "default")


def _context(path: str, name: str) -> dict[str, Any]:
    found: dict[str, Any] = _entry(path, name)["context"]
    return found


def _entry(path: str, name: str) -> dict[str, Any]:
    contexts, active = official_config.list_kube_config_contexts(path)
    found: dict[str, Any] = next((each for each in contexts if each["name"] == name), active)
    return found


class KubernetesCluster:
    """`kube.api.Cluster` over HTTP; safe to share between threads.

    What was not answered is sent again if that is safe (kube.retries). So a create may raise AlreadyExists for the
    very object it made, and a delete NotFound for the one it deleted; names and uids that mean something make both
    harmless.
    """

    def __init__(self, transport: Transport, settings: ConnectionSettings) -> None:
        self._transport = transport
        self._settings = settings

    @property
    def server(self) -> str:
        """The API server's URL."""
        return self._transport.server

    def serves(self, resource: Resource) -> bool:
        """Whether the server knows the resource: others' kinds are there only where somebody has installed them."""
        try:
            found = self._object(requests.served(resource))
        except errors.NotFound:
            return False
        return any(each.get("name") == resource.plural for each in found.get("resources") or ())

    def get(self, resource: Resource, name: str, namespace: str = "") -> Manifest:
        """One object. NotFound if it is not there."""
        return self._object(requests.get(resource, name, namespace))

    def list(
        self, resource: Resource, namespace: str = "", *, label_selector: str = "", field_selector: str = ""
    ) -> Listing:
        """All objects, of one namespace or of all; begins again if they change faster than the pages come."""
        for restart in range(_LIST_RESTARTS + 1):
            limit = self._settings.page_size if restart < _LIST_RESTARTS else 0
            try:
                found = [*self._pages(resource, namespace, label_selector, field_selector, limit)]
            except errors.Expired:
                continue
            return Listing([item for page in found for item in page.items], found[0].resource_version)
        raise errors.Expired(f"the list of {resource.plural} expired again and again while it was read")

    def pages(self, resource: Resource, namespace: str = "", *, label_selector: str = "") -> Iterator[Listing]:
        """The same list page by page; Expired, at any page, if reading them took longer than the server remembers."""
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
        """Changes after a resourceVersion, bookmarks included, until the server ends the watch.

        Expired, here or while reading, if the version is too old; Unreachable if the connection breaks. `close` ends it
        from any thread.
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
        """Make an object (unknown fields are refused) and return it as stored. AlreadyExists if its name is taken."""
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
        """Change an object or its subresource. With a resource_version (merge patch only), Conflict if it is newer."""
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
        """Delete an object, its dependents in the background. With a uid, Conflict if another object has its name."""
        self._transport.send(
            requests.delete(
                resource, name, namespace, uid=uid, grace_period_seconds=grace_period_seconds, dry_run=dry_run
            )
        )

    def logs(self, pod: str, namespace: str, container: str = "", *, follow: bool = False) -> Stream[bytes]:
        """A container's output in pieces as they come; with follow, until it ends. `close` ends it from any thread."""
        request = requests.logs(pod, namespace, container, follow=follow)
        patience = None if follow else self._settings.read_timeout
        response = self._transport.open(request, first_timeout=patience, idle_timeout=patience)
        return Stream(response, self._transport.pieces(response))

    def log_end(
        self, pod: str, namespace: str, container: str, *, lines: int, most: int, previous: bool = False
    ) -> str:
        """The last lines of a container's output, of these the last `most` bytes; with `previous`, of the run before
        the last restart."""
        request = requests.logs(pod, namespace, container, follow=False, lines=lines, previous=previous)
        patience = self._settings.read_timeout
        response = self._transport.open(request, first_timeout=patience, idle_timeout=patience)
        found = b""
        with Stream(response, self._transport.pieces(response)) as pieces:
            for piece in pieces:
                found = (found + piece)[-most:]
        return found.decode(errors="replace")

    def service(self, namespace: str, name: str, path: str) -> Any:
        """The JSON that a service answers at a path, asked through the API server; the name as its proxy has it."""
        return self._transport.send(requests.service(namespace, name, path))

    def metrics(self) -> str:
        """What the server counts, in the Prometheus text format; for benchmarks and tests."""
        patience = self._settings.read_timeout
        response = self._transport.open(requests.metrics(), first_timeout=patience, idle_timeout=patience)
        with Stream(response, self._transport.pieces(response)) as pieces:
            return b"".join(pieces).decode()

    def close(self) -> None:
        """Give the connections back. Open watches are their readers' to close."""
        self._transport.close()

    def _object(self, request: requests.Request) -> Manifest:
        return self._checked(self._transport.send(request))

    def _checked(self, answer: Any) -> Manifest:
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
                limit = pages.fewer(limit)
                continue
            limit = pages.more(limit, size, most)
            answer = self._checked(answer)
            metadata = answer.get("metadata") or {}
            if "items" not in answer or "resourceVersion" not in metadata:
                # Taken for an empty list, it would look as if everything were deleted.
                raise errors.ServerError(f"{self.server} did not answer with a list; is it a Kubernetes API server?")
            yield Listing(_named(resource, answer["items"] or []), metadata["resourceVersion"])
            token = metadata.get("continue") or ""
            if not token:
                return


def _named(resource: Resource, items: "list[Manifest]") -> "list[Manifest]":
    """Items of a list of a built-in resource carry no kind, the same objects read one by one do."""
    for item in items:
        item.setdefault("apiVersion", resource.api_version)
        item.setdefault("kind", resource.kind)
    return items


def _configuration(settings: ConnectionSettings) -> Any:
    """From the explicit kubeconfig, KUBECONFIG, ~/.kube/config or the pod this process runs in, in that order."""
    configuration = official.Configuration()
    path = settings.kubeconfig or os.environ.get("KUBECONFIG", "")
    if path or settings.context or Path(os.path.expanduser(DEFAULT_KUBECONFIG)).exists():
        _load(
            lambda: _from_file(path or DEFAULT_KUBECONFIG, settings.context, configuration), path or DEFAULT_KUBECONFIG
        )
    elif os.environ.get(IN_CLUSTER):
        _load(lambda: official_config.load_incluster_config(configuration), "the service account of this pod")
    else:
        raise errors.Misconfigured(
            f"no Kubernetes configuration: give --kubeconfig, set KUBECONFIG, or put one at {DEFAULT_KUBECONFIG}; "
            "for a cluster on this machine: torchq local up"
        )
    return configuration


def _from_file(path: str, context: str, configuration: Any) -> None:
    files = [Path(part).expanduser() for part in path.split(os.pathsep) if part]
    if not any(file.exists() for file in files):
        raise FileNotFoundError("there is no such file")
    official_config.load_kube_config(path, context=context or None, client_configuration=configuration)


def _load(load: Callable[[], None], source: str) -> None:
    """The official loader fails with what a malformed file makes it run into. The file's text, tokens, is not shown."""
    try:
        load()
    except official_config.ConfigException as e:
        # Its messages may end in the offending entry itself.
        raise errors.Misconfigured(f"cannot use {source}: {str(e).split('{')[0].strip()}") from None
    except (FileNotFoundError, PermissionError) as e:
        raise errors.Misconfigured(f"cannot use {source}: {e}") from e
    except (yaml.YAMLError, OSError, KeyError, TypeError, AttributeError, ValueError) as e:
        raise errors.Misconfigured(f"cannot use {source}: it is not a kubeconfig ({type(e).__name__})") from None


class _Authorization:
    """The Authorization header of the moment; expiring tokens are renewed by the official loader, a thread at a time.

    Asked at most once a second: the loader sets its whole configuration anew each time, a quarter of a request's CPU.
    """

    def __init__(self, configuration: Any) -> None:
        self._configuration = configuration
        self._lock = threading.Lock()
        self._header: str | None = None
        self._good_until = 0.0

    def __call__(self) -> str | None:
        with self._lock:
            if time.monotonic() >= self._good_until:
                self._header = self._renewed()
                self._good_until = time.monotonic() + _CREDENTIALS_SECONDS
            return self._header

    def _renewed(self) -> str | None:
        try:
            token: str | None = self._configuration.get_api_key_with_prefix("BearerToken", alias="authorization")
        except Exception as e:
            # A credential plugin or an OIDC library may raise anything, with a token in its words.
            raise errors.Misconfigured(
                f"cannot renew the credentials: {type(e).__name__}; check the kubeconfig"
            ) from None
        return token.strip() if token else None


def _spare_loopback(configuration: Any, server: str) -> None:
    """A proxy from the environment is not for loopback addresses, as in Go's client; one from the kubeconfig is."""
    host = urllib.parse.urlsplit(server).hostname or ""
    if configuration.proxy in urllib.request.getproxies().values() and _loopback(host):
        configuration.proxy = None


def _loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
