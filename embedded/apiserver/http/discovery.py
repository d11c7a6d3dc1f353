"""Discovery: the resources that this server serves, for clients that look them up first.

One rule: all documents are derived from the catalog, so a CRD appears as soon as it is served.
"""

import base64
import hashlib
import sys
from typing import Any

from embedded.apiserver.http import reviews
from embedded.apiserver.kinds.catalog import Catalog, Kind
from embedded.apiserver.status_errors import no_such_page
from embedded.apiserver.wire import request_target

KUBERNETES = ("1", "33")
"""The release whose behaviour this server follows."""

_VERBS = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]
_DEFINED_VERBS = ["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"]
"""The same verbs in the order in which a Kubernetes API server lists them for custom resources."""
_SUBRESOURCES: dict[str, tuple[str, list[str]]] = {
    "status": ("", ["get", "patch", "update"]),
    "scale": ("Scale", ["get", "patch", "update"]),
    "binding": ("Binding", ["create"]),
    "eviction": ("Eviction", ["create"]),
    "log": ("", ["get"]),
}

_BODY_TYPES = {"scale": {"group": "autoscaling", "version": "v1"}, "eviction": {"group": "policy", "version": "v1"}}
"""The subresources whose bodies belong to another group."""
_VIRTUAL_GROUPS = (reviews.AUTHENTICATION, reviews.AUTHORIZATION)
"""The groups of reviews, which store no objects."""


def answer(path: str, catalog: Catalog) -> dict[str, Any]:
    """Return the document at a discovery path. Raise StatusError (NotFound) for any other path."""
    match path.strip("/").split("/"):
        case ["version"]:
            return _version()
        case ["api"]:
            return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}
        case ["apis"]:
            groups = [_group(name, catalog) for name in _groups(catalog)]
            return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}
        case ["apis", group] if group in _groups(catalog):
            return {**_group(group, catalog), "kind": "APIGroup", "apiVersion": "v1"}
        case ["api", version]:
            return _resources("", version, catalog)
        case ["apis", group, version]:
            return _resources(group, version, catalog)
        case _:
            raise no_such_page()


def _version() -> dict[str, str]:
    major, minor = KUBERNETES
    python = ".".join(str(part) for part in sys.version_info[:3])
    return {
        "major": major,
        "minor": minor,
        "gitVersion": f"v{major}.{minor}.0+torchq-local",
        "gitCommit": "",
        "gitTreeState": "",
        "buildDate": "1970-01-01T00:00:00Z",
        "compiler": sys.implementation.name,
        "platform": sys.platform,
        "goVersion": f"none (Python {python})",
    }


def _groups(catalog: Catalog) -> list[str]:
    groups = [kind.resource.group for kind in catalog.kinds() if kind.resource.group]
    return list(dict.fromkeys([*groups, *_VIRTUAL_GROUPS]))


def _group(group: str, catalog: Catalog) -> dict[str, Any]:
    kinds = (kind for kind in catalog.kinds() if kind.resource.group == group)
    versions = dict.fromkeys(kind.resource.version for kind in kinds) or ("v1",)
    described = [{"groupVersion": f"{group}/{version}", "version": version} for version in versions]
    return {"name": group, "versions": described, "preferredVersion": described[0]}


def _resources(group: str, version: str, catalog: Catalog) -> dict[str, Any]:
    kinds = [k for k in catalog.kinds() if (k.resource.group, k.resource.version) == (group, version)]
    if not kinds and not (group in _VIRTUAL_GROUPS and version == "v1"):
        raise request_target.path_not_found(group, catalog)
    return {
        "kind": "APIResourceList",
        **({"apiVersion": "v1"} if group else {}),
        "groupVersion": f"{group}/{version}" if group else version,
        "resources": [
            *(described for kind in kinds for described in _describe(kind)),
            *reviews.resources(group, version),
        ],
    }


def _describe(kind: Kind) -> list[dict[str, Any]]:
    resource = kind.resource
    # Clients compare the hash to detect a change of the storage version.
    digest = hashlib.sha256(f"{resource.group}/{resource.version}/{resource.kind}".encode()).digest()
    whole = {
        "name": resource.plural,
        "singularName": kind.singular,
        "namespaced": resource.namespaced,
        "kind": resource.kind,
        "verbs": _DEFINED_VERBS if kind.custom else _VERBS,
        **({"shortNames": list(kind.short_names)} if kind.short_names else {}),
        **({"categories": list(kind.categories)} if kind.categories else {}),
        "storageVersionHash": base64.b64encode(digest[:8]).decode(),
    }
    # The subresource status of a custom resource comes first; the subresources of built-in resources are sorted by
    # name.
    return [whole, *(_describe_subresource(kind, part) for part in sorted(kind.subresources, reverse=kind.custom))]


def _describe_subresource(kind: Kind, part: str) -> dict[str, Any]:
    body_kind, verbs = _SUBRESOURCES[part]
    return {
        "name": f"{kind.resource.plural}/{part}",
        "singularName": "",
        "namespaced": kind.resource.namespaced,
        "kind": body_kind or kind.resource.kind,
        "verbs": verbs,
        **_BODY_TYPES.get(part, {}),
    }
