"""The operations of a resource in OpenAPI documents.

One rule: a description contains only the parts that clients read: the kind of the operation, its options and its
bodies.
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


def paths(kind: Kind, reference: Item, version: int) -> Iterator[tuple[str, Item]]:
    """Yield the path items of a version of OpenAPI."""
    text = _typed("string", version)
    for path, operations in _paths(kind):
        variables = [name for name in ("namespace", "name") if f"{{{name}}}" in path]
        item: Item = {
            method: _operation(kind, method, action, names, reference, version) for method, action, names in operations
        }
        item["parameters"] = [{"name": name, "in": "path", "required": True, **text} for name in variables]
        yield path, item


def _typed(name: str, version: int) -> Item:
    return {"type": name} if version == 2 else {"schema": {"type": name}}


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


def _bodies(kind: Kind, method: str) -> tuple[str, ...]:
    if method != "patch":
        return (JSON,)
    return (patches.JSON, patches.MERGE, *(() if kind.custom else (strategic_merge.MEDIA_TYPE,)))


def _operation(kind: Kind, method: str, action: str, names: tuple[str, ...], reference: Item, version: int) -> Item:
    parameters: list[Item] = [
        {"name": name, "in": "query", **_typed(_TYPES.get(name, "string"), version)} for name in names
    ]
    answer = {"schema": reference} if version == 2 else {"content": {JSON: {"schema": reference}}}
    operation: Item = {
        "x-kubernetes-action": action,
        "x-kubernetes-group-version-kind": identity(kind),
        "parameters": parameters,
        **({"produces": [JSON]} if version == 2 else {}),
        "responses": {"200": {"description": "OK", **answer}},
    }
    schema = {"type": "object"} if method == "patch" else reference
    if method in {"post", "put", "patch"} and version == 2:
        operation["consumes"] = list(_bodies(kind, method))
        parameters.append({"name": "body", "in": "body", "required": True, "schema": schema})
    elif method in {"post", "put", "patch"}:
        operation["requestBody"] = {"content": {media_type: {"schema": schema} for media_type in _bodies(kind, method)}}
    return operation
