"""The target of an HTTP request: its resource, its object and its selectors.

One rule: a request is parsed once, before any handler. A parameter that would change its meaning and cannot be parsed
is refused.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from embedded.apiserver.kinds.catalog import Catalog, Kind
from embedded.apiserver.status_errors import StatusError, no_such_page, no_such_path, not_found, not_offered
from embedded.apiserver.wire import selectors
from embedded.apiserver.wire.selectors import Selector

_NOT_OFFERED = {"attach", "ephemeralcontainers", "exec", "portforward", "proxy"}
_INSTEAD = "containers are processes of this machine: use their ports on 127.0.0.1 and their folders on its disk"
_KUBERNETES = (
    *("apps", "autoscaling", "batch", "policy", "admissionregistration.k8s.io", "authentication.k8s.io"),
    *("authorization.k8s.io", "certificates.k8s.io", "discovery.k8s.io", "events.k8s.io", "networking.k8s.io"),
    *("flowcontrol.apiserver.k8s.io", "node.k8s.io", "rbac.authorization.k8s.io", "storage.k8s.io"),
)
"""The groups that every Kubernetes cluster serves."""


@dataclass(frozen=True, slots=True)
class Target:
    """The target of a path: a collection (without a name), an object, or a subresource."""

    kind: Kind
    namespace: str = ""
    name: str = ""
    subresource: str = ""


def target(path: str, catalog: Catalog) -> Target:
    """Return the target of a path below /api or /apis. Raise StatusError (NotFound) if the server does not serve the
    resource.
    """
    parts = path.strip("/").split("/")
    root, parts = parts[0], parts[1:]
    group = parts.pop(0) if root == "apis" and parts else ""
    if len(parts) < 2 or not all(parts):
        raise path_not_found(group, catalog)
    version, *rest = parts
    return _parse_target(group, version, rest, catalog)


def path_not_found(group: str, catalog: Catalog) -> StatusError:
    """Return the NotFound for a path of a group: a Status in the groups of built-in resources, else a text page."""
    is_api_group = not group or group in _KUBERNETES or catalog.has_builtin_group(group)
    return no_such_path() if is_api_group else no_such_page()


def _parse_target(group: str, version: str, rest: list[str], catalog: Catalog) -> Target:
    namespace = ""
    # /namespaces/x/pods names pods; /namespaces/x and /namespaces/x/status name the namespace itself.
    if rest[0] == "namespaces" and len(rest) > 2 and catalog.find(group, version, rest[2]):
        namespace, rest = rest[1], rest[2:]
    elif rest[0] == "namespaces" and len(rest) == 3 and rest[2] == "bindings" and not group:
        namespace, rest = rest[1], ["pods", "", "binding"]
    kind = catalog.find(group, version, rest[0])
    if kind is None or len(rest) > 3 or bool(namespace) > kind.resource.namespaced:
        raise path_not_found(group, catalog)
    target = Target(kind, namespace, *rest[1:])
    if kind.resource.namespaced and target.name and not namespace:
        raise path_not_found(group, catalog)
    if target.subresource and target.subresource not in kind.subresources:
        raise _subresource_not_found(target)
    return target


def _subresource_not_found(target: Target) -> StatusError:
    """Return the error for a subresource that the kind does not have."""
    if target.kind.custom:
        return not_found(target.kind.resource, target.name)
    return not_offered(target.subresource, _INSTEAD) if target.subresource in _NOT_OFFERED else no_such_path()


def selector(query: Mapping[str, str], kind: Kind) -> Selector:
    """Return the label and field selector of a request."""
    return selectors.parse(
        query.get("labelSelector", ""), query.get("fieldSelector", ""), kind.selectable, custom=kind.custom
    )
