"""An HTTP request in the words of the API: which resource, which object, with which options.

One rule: parsed once, at the door; a parameter that would change the meaning and is not understood is refused.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from embedded.apiserver.kinds.catalog import Catalog, Kind
from embedded.apiserver.status_errors import Refusal, no_such_page, no_such_path, not_found, not_offered
from embedded.apiserver.wire import selectors
from embedded.apiserver.wire.selectors import Selector

_NOT_OFFERED = {"attach", "ephemeralcontainers", "exec", "portforward", "proxy"}
_INSTEAD = "containers are processes of this machine: their ports are 127.0.0.1's, their folders are on its disk"
_KUBERNETES = (
    *("apps", "autoscaling", "batch", "policy", "admissionregistration.k8s.io", "authentication.k8s.io"),
    *("authorization.k8s.io", "certificates.k8s.io", "discovery.k8s.io", "events.k8s.io", "networking.k8s.io"),
    *("flowcontrol.apiserver.k8s.io", "node.k8s.io", "rbac.authorization.k8s.io", "storage.k8s.io"),
)
"""Groups that any other cluster serves."""


@dataclass(frozen=True, slots=True)
class Target:
    """What a path names: a collection (no name), an object, or a subresource."""

    kind: Kind
    namespace: str = ""
    name: str = ""
    subresource: str = ""


def target(path: str, catalog: Catalog) -> Target:
    """Read a path below /api or /apis. NotFound if nothing is served there."""
    parts = path.strip("/").split("/")
    root, parts = parts[0], parts[1:]
    group = parts.pop(0) if root == "apis" and parts else ""
    if len(parts) < 2 or not all(parts):
        raise unserved(group, catalog)
    version, *rest = parts
    return _within(group, version, rest, catalog)


def unserved(group: str, catalog: Catalog) -> Refusal:
    """NotFound for a path of a group: a Status where the server's own resources are, a page everywhere else."""
    known = not group or group in _KUBERNETES or catalog.builtin(group)
    return no_such_path() if known else no_such_page()


def _within(group: str, version: str, rest: list[str], catalog: Catalog) -> Target:
    namespace = ""
    # /namespaces/x/pods is about pods, /namespaces/x and /namespaces/x/status about the namespace itself.
    if rest[0] == "namespaces" and len(rest) > 2 and catalog.find(group, version, rest[2]):
        namespace, rest = rest[1], rest[2:]
    elif rest[0] == "namespaces" and len(rest) == 3 and rest[2] == "bindings" and not group:
        namespace, rest = rest[1], ["pods", "", "binding"]
    kind = catalog.find(group, version, rest[0])
    if kind is None or len(rest) > 3 or bool(namespace) > kind.resource.namespaced:
        raise unserved(group, catalog)
    found = Target(kind, namespace, *rest[1:])
    if kind.resource.namespaced and found.name and not namespace:
        raise unserved(group, catalog)
    if found.subresource and found.subresource not in kind.subresources:
        raise _without(found)
    return found


def _without(target: Target) -> Refusal:
    """Why a subresource is not there."""
    if target.kind.custom:
        return not_found(target.kind.resource, target.name)
    return not_offered(target.subresource, _INSTEAD) if target.subresource in _NOT_OFFERED else no_such_path()


def selector(query: Mapping[str, str], kind: Kind) -> Selector:
    """The label and field selector of a request."""
    return selectors.parse(
        query.get("labelSelector", ""), query.get("fieldSelector", ""), kind.selectable, custom=kind.custom
    )
