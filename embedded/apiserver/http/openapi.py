"""OpenAPI documents, with which kubectl explains resources, checks requests and computes patches.

One rule: all documents are derived from the catalog, as discovery is. A document is built at the first request for it,
and again after the served kinds have changed.
"""

import hashlib
from collections.abc import Iterator
from typing import Any

import orjson

from embedded.apiserver.http import openapi_paths
from embedded.apiserver.http.discovery import KUBERNETES
from embedded.apiserver.kinds import descriptions, object_meta
from embedded.apiserver.kinds.catalog import Catalog, Kind
from embedded.apiserver.status_errors import no_such_path

SECOND = "/openapi/v2"
Document = dict[str, Any]
_INTERNAL = ("x-kept", "x-dropped")
_META = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
_NUMBER_OR_TEXT = {"oneOf": [{"type": "string"}, {"type": "number"}]}
_NOT_IN_V2 = ("oneOf", "anyOf", "allOf", "not", "nullable")


class OpenApi:
    """The documents of one server."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._kinds: list[Kind] = []
        self._documents: dict[str, bytes] = {}

    def answer(self, path: str) -> bytes:
        """Return the document at a path below /openapi. Raise StatusError (NotFound) for any other path."""
        kinds = self._catalog.kinds()
        if len(kinds) != len(self._kinds) or any(new is not old for new, old in zip(kinds, self._kinds, strict=True)):
            self._kinds, self._documents = kinds, {}
        if path not in self._documents:
            self._documents[path] = orjson.dumps(self._make(path))
        return self._documents[path]

    def _make(self, path: str) -> Document:
        match path.strip("/").split("/"):
            case ["openapi", "v3"]:
                return {"paths": {root: {"serverRelativeURL": self._address(root)} for root in self._roots()}}
            case ["openapi", "v3", *rest] if "/".join(rest) in self._roots():
                return _document(self._roots()["/".join(rest)], 3)
            case ["openapi", "v2"]:
                return _document(self._kinds, 2)
            case _:
                raise no_such_path()

    def _roots(self) -> dict[str, list[Kind]]:
        """Return the kinds of each group and version, by its path."""
        roots: dict[str, list[Kind]] = {}
        for kind in self._kinds:
            roots.setdefault(kind.resource.path().strip("/").rpartition("/")[0], []).append(kind)
        return roots

    def _address(self, root: str) -> str:
        path = f"/openapi/v3/{root}"
        return f"{path}?hash={hashlib.sha256(self.answer(path)).hexdigest()[:32].upper()}"


def _document(kinds: list[Kind], version: int) -> Document:
    info = {"title": "Kubernetes", "version": f"v{'.'.join(KUBERNETES)}.0"}
    references = [(kind, {"$ref": _place(version) + _name(kind)}) for kind in kinds]
    paths = {path: item for kind, ref in references for path, item in openapi_paths.paths(kind, ref, version)}
    schemas = {_name(kind): _schema(kind, version) for kind in kinds} | {_META: _publish(object_meta.SCHEMA, version)}
    if version == 2:
        return {"swagger": "2.0", "info": info, "paths": paths, "definitions": schemas}
    return {"openapi": "3.0.0", "info": info, "paths": paths, "components": {"schemas": schemas}}


def _name(kind: Kind) -> str:
    resource = kind.resource
    if kind.custom:
        domain = ".".join(reversed(resource.group.split(".")))
        return f"{domain}.{resource.version}.{resource.kind}"
    package = resource.group.partition(".")[0] or "core"
    return f"io.k8s.api.{package}.{resource.version}.{resource.kind}"


def _place(version: int) -> str:
    return "#/definitions/" if version == 2 else "#/components/schemas/"


def _schema(kind: Kind, version: int) -> Document:
    schema = _publish(kind.schema.source, version)
    reference = {"$ref": _place(version) + _META}
    metadata = reference if version == 2 else {"allOf": [reference], "default": {}}
    schema["properties"] = {**schema["properties"], "metadata": metadata}
    schema["x-kubernetes-group-version-kind"] = [openapi_paths.identity(kind)]
    schema["properties"] |= {
        name: {**schema["properties"][name], "description": text} for name, text in descriptions.ROOT.items()
    }
    return schema if kind.custom else descriptions.describe(schema, kind.resource.kind)


def _publish(schema: Any, version: int) -> Document:
    """Return a schema as it is published: without internal keys, and in the form of the OpenAPI version."""
    if schema.get("format") == "quantity":
        return {"type": "string"} if version == 2 else dict(_NUMBER_OR_TEXT)
    return dict(_public_items(schema, version))


def _public_items(schema: Any, version: int) -> Iterator[tuple[str, Any]]:
    for key, value in schema.items():
        if key in _INTERNAL or (version == 2 and key in _NOT_IN_V2):
            continue
        match key, value:
            case "properties", dict():
                yield key, {name: _publish(child, version) for name, child in value.items()}
            case (("items" | "additionalProperties" | "not"), dict()):
                yield key, _publish(value, version)
            case (("allOf" | "anyOf" | "oneOf"), list()):
                yield key, [_publish(child, version) for child in value]
            case _:
                yield key, value
    if schema.get("x-kubernetes-int-or-string") and version == 3 and "anyOf" not in schema:
        yield "oneOf", [{"type": "integer"}, {"type": "string"}]
