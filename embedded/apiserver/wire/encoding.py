"""In which form an answer goes back: whole objects, their metadata only, or a table for `kubectl get`.

One rule: the client names the forms it takes, best first; what none of them fits is refused, never guessed.
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
from embedded.apiserver.kinds.printing import builtin_columns, columns
from embedded.apiserver.kinds.printing.columns import Cells
from embedded.apiserver.status_errors import Refusal
from kube.api import Manifest

Form = Literal["Object", "Table", "PartialObjectMetadata"]
GROUP = "meta.k8s.io"
_VERSIONS = {"v1", "v1beta1"}
YAML = "application/yaml"
_LARGEST_YAML = 256 * 1024
"""Bytes; everybody waits while YAML is written, which takes half a second for these."""
_ANY = {"*/*", "application/*", "application/json", "", YAML}
_PART: Mapping[str, Form] = {
    "Table": "Table",
    "PartialObjectMetadata": "PartialObjectMetadata",
    "PartialObjectMetadataList": "PartialObjectMetadata",
}


@dataclass(frozen=True, slots=True)
class Range:
    """One of the media types a client takes."""

    type: str
    parameters: Mapping[str, str]


def ranges(accept: str) -> Iterator[Range]:
    """The media types of an Accept header, best first."""
    found: list[tuple[float, int, Range]] = []
    for index, part in enumerate(accept.split(",")):
        kind, *pairs = (word.strip() for word in part.split(";"))
        parameters = dict(pair.partition("=")[::2] for pair in pairs)
        found.append((-_weight(parameters.pop("q", "1")), index, Range(kind.lower(), parameters)))
    return (each for _, _, each in sorted(found, key=lambda item: item[:2]))


def _weight(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 1.0


@dataclass(frozen=True, slots=True)
class Chosen:
    """The form of an answer."""

    form: Form = "Object"
    version: str = "v1"
    """Of meta.k8s.io."""
    include: str = "Metadata"
    """What of its object a table's row carries: None, Metadata or Object."""
    listed: bool | None = None
    """Whether only a list can be shown so, or only an object."""
    yaml: bool = False


@lru_cache(maxsize=256)
def choose(accept: str, include: str = "Metadata") -> Chosen:
    """The best form that the client takes. 406 if it takes none that there is."""
    for each in ranges(accept):
        if each.type not in _ANY:
            continue
        form, version = each.parameters.get("as", ""), each.parameters.get("v", "v1")
        if not form:
            return Chosen(yaml=each.type == YAML)
        if form in _PART and each.parameters.get("g") == GROUP and version in _VERSIONS:
            if include not in {"None", "Metadata", "Object"}:
                raise status_errors.bad_request(f"includeObject: {include!r} is not None, Metadata or Object")
            listed = None if form == "Table" else form.endswith("List")
            return Chosen(_PART[form], version, include, listed, each.type == YAML)
    raise not_acceptable()


def not_acceptable() -> Refusal:
    """406: the client takes nothing this server makes."""
    message = "406: Not Acceptable\n\nAvailable representations: application/json, application/yaml"
    return Refusal(406, "NotAcceptable", message, {})


def likes_yaml(accept: str) -> bool:
    """Whether a client likes YAML best of what there is."""
    try:
        return "yaml" in accept and choose(accept).yaml
    except Refusal:
        return False


def as_yaml(body: bytes) -> bytes:
    """A JSON answer in YAML. 406 if it is too large."""
    if len(body) > _LARGEST_YAML:
        message = f"answers of more than {_LARGEST_YAML >> 10} KiB are not made YAML here: ask for JSON"
        raise Refusal(406, "NotAcceptable", message)
    return yaml.dump(orjson.loads(body), Dumper=_Dumper, allow_unicode=True).encode()


_Dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


@dataclass
class Shown:
    """Objects of one kind in one form."""

    kind: Kind
    chosen: Chosen
    now: Callable[[], float] = time.time
    _headed: bool = field(default=False, init=False)

    def answer(self, body: bytes) -> bytes:
        """An object or a list in the form asked for."""
        if self.chosen.form == "Object":
            return body
        parsed: Manifest = orjson.loads(body)
        items: list[Manifest] | None = parsed.get("items") if str(parsed.get("kind")).endswith("List") else None
        self._check(listed=items is not None)
        found = [parsed] if items is None else items
        if self.chosen.form == "Table":
            return orjson.dumps(self._table(found, parsed["metadata"], listed=items is not None))
        if items is None:
            return orjson.dumps(self._partial(parsed))
        own = {"metadata": parsed["metadata"], "items": [self._partial(item) for item in items]}
        return orjson.dumps({**self._head("PartialObjectMetadataList"), **own})

    def _check(self, *, listed: bool) -> None:
        """Refused if a list is asked for in the form of an object, or the other way round."""
        if self.chosen.listed in {None, listed}:
            return
        if self.kind.custom and not listed:
            raise Refusal(500, "", "content is not a list")
        package = self.kind.resource.group.partition(".")[0] or "core"
        plural = "unstructured.UnstructuredList" if self.kind.custom else f"{package}.{self.kind.resource.kind}List"
        shown = f"is a list (*{plural})" if listed else f"is not a list (*{package}.{self.kind.resource.kind})"
        word = "PartialObjectMetadata" if listed else "PartialObjectMetadataList"
        raise Refusal(406, "NotAcceptable", f"you requested {word}, but the requested object {shown}")

    def event(self, body: bytes) -> bytes:
        """The object of a watch's event; of a watch's tables only the first has the columns."""
        if self.chosen.form == "Object":
            return body
        parsed: Manifest = orjson.loads(body)
        if self.chosen.form == "PartialObjectMetadata":
            return orjson.dumps(self._partial(parsed))
        table = self._table([parsed] if parsed["metadata"].get("name") else [], parsed["metadata"], listed=False)
        if self._headed:
            table["columnDefinitions"] = None
        self._headed = True
        return orjson.dumps(table)

    def _head(self, kind: str) -> Manifest:
        return {"kind": kind, "apiVersion": f"{GROUP}/{self.chosen.version}"}

    def _partial(self, body: Manifest) -> Manifest:
        return {**self._head("PartialObjectMetadata"), "metadata": body.get("metadata") or {}}

    def _table(self, found: list[Manifest], metadata: Manifest, *, listed: bool) -> Manifest:
        cells, now = _cells(self.kind), self.now()
        own = metadata if listed else {"resourceVersion": metadata.get("resourceVersion", "")}
        return {
            **self._head("Table"),
            "metadata": own,
            "columnDefinitions": [_definition(each) for each in cells],
            "rows": [self._row(body, cells, now) for body in found],
        }

    def _row(self, body: Manifest, cells: list[Cells], now: float) -> Manifest:
        row: Manifest = {"cells": [each.cell(body, now) for each in cells]}
        match self.chosen.include:
            case "Metadata":
                row["object"] = self._partial(body)
            case "Object":
                head = {"kind": self.kind.resource.kind, "apiVersion": self.kind.resource.api_version}
                row["object"] = {**head, **body}
            case _:
                row["object"] = None
        return row


def _cells(kind: Kind) -> list[Cells]:
    return builtin_columns.TABLES.get(kind.storage) or columns.defined(kind)


def _definition(cells: Cells) -> Manifest:
    column = cells.column
    return {
        "name": column.name,
        "type": column.type,
        "format": cells.format,
        "description": column.description,
        "priority": column.priority,
    }
