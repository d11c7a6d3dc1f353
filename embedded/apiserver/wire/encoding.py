"""The forms of an answer: whole objects, their metadata only, or a table for `kubectl get`.

One rule: the client names the forms that it accepts, best first. If the server supports none of these forms, the
server refuses the request instead of guessing.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal

import orjson
import yaml

from embedded.apiserver import status_errors
from embedded.apiserver.kinds.catalog import Kind
from embedded.apiserver.kinds.printing import builtin_columns, printer_columns
from embedded.apiserver.kinds.printing.printer_columns import PrintedColumn
from embedded.apiserver.status_errors import StatusError
from kube.api import Manifest

Form = Literal["Object", "Table", "PartialObjectMetadata"]
GROUP = "meta.k8s.io"
_VERSIONS = {"v1", "v1beta1"}
YAML = "application/yaml"
_LARGEST_YAML = 256 * 1024
"""The most bytes that are converted to YAML. They take half a second, in which the server answers no other request."""
_ANY = {"*/*", "application/*", "application/json", "", YAML}
_PART: Mapping[str, Form] = {
    "Table": "Table",
    "PartialObjectMetadata": "PartialObjectMetadata",
    "PartialObjectMetadataList": "PartialObjectMetadata",
}


@dataclass(frozen=True, slots=True)
class MediaRange:
    """One of the media types that a client accepts."""

    type: str
    parameters: Mapping[str, str]


def media_ranges(accept: str) -> Iterator[MediaRange]:
    """Yield the media types of an Accept header, best first."""
    weighted: list[tuple[float, int, MediaRange]] = []
    for index, part in enumerate(accept.split(",")):
        kind, *pairs = (text.strip() for text in part.split(";"))
        parameters = dict(pair.partition("=")[::2] for pair in pairs)
        weighted.append((-_weight(parameters.pop("q", "1")), index, MediaRange(kind.lower(), parameters)))
    return (media_range for _, _, media_range in sorted(weighted, key=lambda item: item[:2]))


def _weight(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 1.0


@dataclass(frozen=True, slots=True)
class Representation:
    """The form of an answer."""

    form: Form = "Object"
    version: str = "v1"
    """The version of meta.k8s.io."""
    include: str = "Metadata"
    """The part of its object that a row of a table carries: None, Metadata or Object."""
    is_list: bool | None = None
    """Whether the form is for lists only (true) or for objects only (false); None for both."""
    yaml: bool = False


@lru_cache(maxsize=256)
def negotiate(accept: str, include: str = "Metadata") -> Representation:
    """Return the best form that the client accepts. Raise StatusError (406) if the server supports none of the
    accepted forms.
    """
    for media_range in media_ranges(accept):
        if media_range.type not in _ANY:
            continue
        form, version = media_range.parameters.get("as", ""), media_range.parameters.get("v", "v1")
        if not form:
            return Representation(yaml=media_range.type == YAML)
        if form in _PART and media_range.parameters.get("g") == GROUP and version in _VERSIONS:
            if include not in {"None", "Metadata", "Object"}:
                raise status_errors.bad_request(f"includeObject: {include!r} is not None, Metadata or Object")
            is_list = None if form == "Table" else form.endswith("List")
            return Representation(_PART[form], version, include, is_list, media_range.type == YAML)
    raise not_acceptable()


def not_acceptable() -> StatusError:
    """Return a 406: the server supports no form that the client accepts."""
    message = "406: Not Acceptable\n\nAvailable representations: application/json, application/yaml"
    return StatusError(406, "NotAcceptable", message, {})


def likes_yaml(accept: str) -> bool:
    """Return whether a client prefers YAML to the other forms of the server."""
    try:
        return "yaml" in accept and negotiate(accept).yaml
    except StatusError:
        return False


def as_yaml(body: bytes) -> bytes:
    """Convert a JSON answer to YAML. Raise StatusError (406) if the answer is too large."""
    if len(body) > _LARGEST_YAML:
        message = f"answers of more than {_LARGEST_YAML >> 10} KiB are not available in YAML: request JSON"
        raise StatusError(406, "NotAcceptable", message)
    return yaml.dump(orjson.loads(body), Dumper=_Dumper, allow_unicode=True).encode()


_Dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


@dataclass
class Encoder:
    """Encodes objects of one kind in one form."""

    kind: Kind
    representation: Representation
    now: Callable[[], float] = time.time
    _has_sent_columns: bool = field(default=False, init=False)

    def answer(self, body: bytes) -> bytes:
        """Encode an object or a list."""
        if self.representation.form == "Object":
            return body
        parsed: Manifest = orjson.loads(body)
        items: list[Manifest] | None = parsed.get("items") if str(parsed.get("kind")).endswith("List") else None
        self._check(is_list=items is not None)
        objects = [parsed] if items is None else items
        if self.representation.form == "Table":
            return orjson.dumps(self._table(objects, parsed["metadata"], is_list=items is not None))
        if items is None:
            return orjson.dumps(self._partial(parsed))
        content = {"metadata": parsed["metadata"], "items": [self._partial(item) for item in items]}
        return orjson.dumps({**self._head("PartialObjectMetadataList"), **content})

    def _check(self, *, is_list: bool) -> None:
        """Raise StatusError (406) for a list in a form for objects, and for an object in a form for lists."""
        if self.representation.is_list in {None, is_list}:
            return
        if self.kind.custom and not is_list:
            raise StatusError(500, "", "content is not a list")
        package = self.kind.resource.group.partition(".")[0] or "core"
        plural = "unstructured.UnstructuredList" if self.kind.custom else f"{package}.{self.kind.resource.kind}List"
        mismatch = f"is a list (*{plural})" if is_list else f"is not a list (*{package}.{self.kind.resource.kind})"
        form = "PartialObjectMetadata" if is_list else "PartialObjectMetadataList"
        raise StatusError(406, "NotAcceptable", f"you requested {form}, but the requested object {mismatch}")

    def event(self, body: bytes) -> bytes:
        """Encode the object of a watch's event. Only the first table of a watch has the column definitions."""
        if self.representation.form == "Object":
            return body
        parsed: Manifest = orjson.loads(body)
        if self.representation.form == "PartialObjectMetadata":
            return orjson.dumps(self._partial(parsed))
        table = self._table([parsed] if parsed["metadata"].get("name") else [], parsed["metadata"], is_list=False)
        if self._has_sent_columns:
            table["columnDefinitions"] = None
        self._has_sent_columns = True
        return orjson.dumps(table)

    def _head(self, kind: str) -> Manifest:
        return {"kind": kind, "apiVersion": f"{GROUP}/{self.representation.version}"}

    def _partial(self, body: Manifest) -> Manifest:
        return {**self._head("PartialObjectMetadata"), "metadata": body.get("metadata") or {}}

    def _table(self, objects: list[Manifest], metadata: Manifest, *, is_list: bool) -> Manifest:
        cells = builtin_columns.TABLES.get(self.kind.storage) or printer_columns.crd_columns(self.kind)
        now = self.now()
        meta = metadata if is_list else {"resourceVersion": metadata.get("resourceVersion", "")}
        return {
            **self._head("Table"),
            "metadata": meta,
            "columnDefinitions": [_definition(cell) for cell in cells],
            "rows": [self._row(body, cells, now) for body in objects],
        }

    def _row(self, body: Manifest, cells: list[PrintedColumn], now: float) -> Manifest:
        row: Manifest = {"cells": [cell.cell(body, now) for cell in cells]}
        match self.representation.include:
            case "Metadata":
                row["object"] = self._partial(body)
            case "Object":
                head = {"kind": self.kind.resource.kind, "apiVersion": self.kind.resource.api_version}
                row["object"] = {**head, **body}
            case _:
                row["object"] = None
        return row


def _definition(cells: PrintedColumn) -> Manifest:
    column = cells.column
    return {
        "name": column.name,
        "type": column.type,
        "format": cells.format,
        "description": column.description,
        "priority": column.priority,
    }
