"""The operations of a resource as OpenAPI documents describe them.

One rule: an operation is described as far as clients read it: whose it is, which options it takes, which bodies.
"""

from collections.abc import Iterator
from typing import Any

from embedded.apiserver.kinds.catalog import Kind
from embedded.apiserver.schema import patches, strategic_merge

Item = dict[str, Any]
JSON = "application/json"
_WRITE = ("dryRun", "fieldManager", "fieldValidation")
_DELETE = ("dryRun", "gracePeriodSeconds", "orphanDependents", "propagationPolicy")
_LIST = (
    "allowWatchBookmarks",
    "continue",
    "fieldSelector",
    "labelSelector",
    "limit",
    "resourceVersion",
    "resourceVersionMatch",
    "timeoutSeconds",
    "watch",
)
_TYPES = {
    **dict.fromkeys(("gracePeriodSeconds", "limit", "timeoutSeconds"), "integer"),
    **dict.fromkeys(("allowWatchBookmarks", "orphanDependents", "watch"), "boolean"),
}
_COLLECTION = (("get", "list", _LIST), ("post", "post", _WRITE), ("delete", "deletecollection", (*_LIST, *_DELETE)))
_OBJECT = (("get", "get", ()), ("put", "put", _WRITE), ("patch", "patch", _WRITE), ("delete", "delete", _DELETE))
_PART = (("get", "get", ()), ("put", "put", _WRITE), ("patch", "patch", _WRITE))
_PARTS = ("status", "scale")


def identity(kind: Kind) -> dict[str, str]:
    """The extension by which clients find what belongs to a kind."""
    resource = kind.resource
    return {"group": resource.group, "version": resource.version, "kind": resource.kind}


def third(kind: Kind, reference: Item) -> Iterator[tuple[str, Item]]:
    """Path items of OpenAPI 3."""
    for path, operations in _paths(kind):
        own = {method: _third(kind, method, action, names, reference) for method, action, names in operations}
        yield path, {**own, "parameters": [_typed(each, {"schema": {"type": "string"}}) for each in _variables(path)]}


def second(kind: Kind, reference: Item) -> Iterator[tuple[str, Item]]:
    """Path items of OpenAPI 2."""
    for path, operations in _paths(kind):
        own = {method: _second(kind, method, action, names, reference) for method, action, names in operations}
        yield path, {**own, "parameters": [_typed(each, {"type": "string"}) for each in _variables(path)]}


def _paths(kind: Kind) -> Iterator[tuple[str, tuple[tuple[str, str, tuple[str, ...]], ...]]]:
    resource = kind.resource
    whole = resource.path()
    own = resource.path("{namespace}") if resource.namespaced else whole
    if own != whole:
        yield whole, _COLLECTION[:1]
    yield own, _COLLECTION
    yield f"{own}/{{name}}", _OBJECT
    for part in _PARTS:
        if part in kind.subresources:
            yield f"{own}/{{name}}/{part}", _PART


def _variables(path: str) -> list[Item]:
    names = (name for name in ("namespace", "name") if f"{{{name}}}" in path)
    return [{"name": name, "in": "path", "required": True} for name in names]


def _typed(parameter: Item, kind: Item) -> Item:
    return {**parameter, **kind}


def _described(kind: Kind, action: str) -> Item:
    return {"x-kubernetes-action": action, "x-kubernetes-group-version-kind": identity(kind)}


def _bodies(kind: Kind, method: str) -> tuple[str, ...]:
    if method != "patch":
        return (JSON,)
    return (patches.JSON, patches.MERGE, *(() if kind.custom else (strategic_merge.MEDIA_TYPE,)))


def _third(kind: Kind, method: str, action: str, names: tuple[str, ...], reference: Item) -> Item:
    query = [{"name": n, "in": "query", "schema": {"type": _TYPES.get(n, "string")}} for n in names]
    found = {
        **_described(kind, action),
        "parameters": query,
        "responses": {"200": {"description": "OK", "content": {JSON: {"schema": reference}}}},
    }
    if method in {"post", "put", "patch"}:
        schema = {"type": "object"} if method == "patch" else reference
        found["requestBody"] = {"content": {each: {"schema": schema} for each in _bodies(kind, method)}}
    return found


def _second(kind: Kind, method: str, action: str, names: tuple[str, ...], reference: Item) -> Item:
    parameters: list[Item] = [{"name": n, "in": "query", "type": _TYPES.get(n, "string")} for n in names]
    found = {
        **_described(kind, action),
        "parameters": parameters,
        "produces": [JSON],
        "responses": {"200": {"description": "OK", "schema": reference}},
    }
    if method in {"post", "put", "patch"}:
        found["consumes"] = list(_bodies(kind, method))
        schema = {"type": "object"} if method == "patch" else reference
        parameters.append({"name": "body", "in": "body", "required": True, "schema": schema})
    return found
