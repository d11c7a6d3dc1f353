"""The operations of a resource in OpenAPI documents.

One rule: a description contains only what clients read: the kind of the operation, its options and its bodies.
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
    """Return the extension by which clients find the operations and the schema of a kind."""
    resource = kind.resource
    return {"group": resource.group, "version": resource.version, "kind": resource.kind}


def paths_v3(kind: Kind, reference: Item) -> Iterator[tuple[str, Item]]:
    """Yield the path items of OpenAPI 3."""
    for path, operations in _paths(kind):
        item = {method: _operation_v3(kind, method, action, names, reference) for method, action, names in operations}
        yield (
            path,
            {**item, "parameters": [_merge(variable, {"schema": {"type": "string"}}) for variable in _variables(path)]},
        )


def paths_v2(kind: Kind, reference: Item) -> Iterator[tuple[str, Item]]:
    """Yield the path items of OpenAPI 2."""
    for path, operations in _paths(kind):
        item = {method: _operation_v2(kind, method, action, names, reference) for method, action, names in operations}
        yield path, {**item, "parameters": [_merge(variable, {"type": "string"}) for variable in _variables(path)]}


def _paths(kind: Kind) -> Iterator[tuple[str, tuple[tuple[str, str, tuple[str, ...]], ...]]]:
    resource = kind.resource
    whole = resource.path()
    collection = resource.path("{namespace}") if resource.namespaced else whole
    if collection != whole:
        yield whole, _COLLECTION[:1]
    yield collection, _COLLECTION
    yield f"{collection}/{{name}}", _OBJECT
    for part in _PARTS:
        if part in kind.subresources:
            yield f"{collection}/{{name}}/{part}", _PART


def _variables(path: str) -> list[Item]:
    names = (name for name in ("namespace", "name") if f"{{{name}}}" in path)
    return [{"name": name, "in": "path", "required": True} for name in names]


def _merge(parameter: Item, kind: Item) -> Item:
    return {**parameter, **kind}


def _operation_head(kind: Kind, action: str) -> Item:
    return {"x-kubernetes-action": action, "x-kubernetes-group-version-kind": identity(kind)}


def _bodies(kind: Kind, method: str) -> tuple[str, ...]:
    if method != "patch":
        return (JSON,)
    return (patches.JSON, patches.MERGE, *(() if kind.custom else (strategic_merge.MEDIA_TYPE,)))


def _operation_v3(kind: Kind, method: str, action: str, names: tuple[str, ...], reference: Item) -> Item:
    query = [{"name": n, "in": "query", "schema": {"type": _TYPES.get(n, "string")}} for n in names]
    operation = {
        **_operation_head(kind, action),
        "parameters": query,
        "responses": {"200": {"description": "OK", "content": {JSON: {"schema": reference}}}},
    }
    if method in {"post", "put", "patch"}:
        schema = {"type": "object"} if method == "patch" else reference
        operation["requestBody"] = {"content": {media_type: {"schema": schema} for media_type in _bodies(kind, method)}}
    return operation


def _operation_v2(kind: Kind, method: str, action: str, names: tuple[str, ...], reference: Item) -> Item:
    parameters: list[Item] = [{"name": n, "in": "query", "type": _TYPES.get(n, "string")} for n in names]
    operation = {
        **_operation_head(kind, action),
        "parameters": parameters,
        "produces": [JSON],
        "responses": {"200": {"description": "OK", "schema": reference}},
    }
    if method in {"post", "put", "patch"}:
        operation["consumes"] = list(_bodies(kind, method))
        schema = {"type": "object"} if method == "patch" else reference
        parameters.append({"name": "body", "in": "body", "required": True, "schema": schema})
    return operation
