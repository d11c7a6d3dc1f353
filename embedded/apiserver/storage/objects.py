"""A stored API object: its bytes, and the few fields that lists, watches and garbage collection need.

One rule: the bytes are the object. A caller that changes an object parses a fresh copy, so no stored object is shared.
"""

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from embedded.apiserver.status_errors import bad_request
from kube.api import Manifest

_NO_TEXT: Mapping[str, str] = {}


@dataclass(frozen=True, slots=True)
class StoredObject:
    """One version of one object. The keys of its JSON are sorted behind the type, so equal objects have equal bytes."""

    namespace: str
    name: str
    uid: str
    version: int
    raw: bytes
    labels: Mapping[str, str]
    fields: Mapping[str, str]
    """The values of the resource's selectable fields beyond metadata.name and metadata.namespace."""
    owners: tuple[str, ...]
    """The uids of the owners."""
    deleting: bool
    """Whether it carries a deletionTimestamp."""

    def manifest(self) -> Manifest:
        """Return a fresh copy that the caller may change."""
        parsed: Manifest = orjson.loads(self.raw)
        return parsed


def encode(manifest: Mapping[str, Any]) -> bytes:
    """Return an object's canonical bytes.

    Raise StatusError (BadRequest) for an object that is nested too deeply to be written.
    """
    try:
        if not isinstance(manifest, dict) or not manifest.keys() >= {"apiVersion", "kind"}:
            return orjson.dumps(manifest, option=orjson.OPT_SORT_KEYS)
        rest = {name: value for name, value in manifest.items() if name not in {"apiVersion", "kind"}}
        packed = orjson.dumps(rest, option=orjson.OPT_SORT_KEYS)
        return head(manifest["apiVersion"], manifest["kind"]) + (packed[1:] if rest else b"}")
    except TypeError as error:
        raise bad_request(f"the object cannot be stored: {error}".lower()) from error


@functools.lru_cache(maxsize=256)
def head(api_version: str, kind: str) -> bytes:
    """Return the first bytes of all objects of a kind, which a list of a built-in resource omits."""
    return orjson.dumps({"apiVersion": api_version, "kind": kind})[:-1] + b","


def seal(manifest: Manifest, version: int, selectable: tuple[str, ...] = ()) -> StoredObject:
    """Set the resourceVersion of a manifest, and return its stored form."""
    manifest["metadata"]["resourceVersion"] = str(version)
    return read(encode(manifest), manifest, version, selectable)


def read(raw: bytes, manifest: Manifest, version: int, selectable: tuple[str, ...]) -> StoredObject:
    """Return the stored form of an object from its bytes and its parsed manifest."""
    metadata = manifest["metadata"]
    return StoredObject(
        namespace=metadata.get("namespace", ""),
        name=metadata["name"],
        uid=metadata["uid"],
        version=version,
        raw=raw,
        labels=metadata.get("labels") or _NO_TEXT,
        fields={path: field_text(manifest, path) for path in selectable} if selectable else _NO_TEXT,
        owners=tuple(owner["uid"] for owner in metadata.get("ownerReferences", ())),
        deleting="deletionTimestamp" in metadata,
    )


def value_at(manifest: Manifest, path: str) -> Any:
    """Return the value at a dotted path; None if the field is missing."""
    value: Any = manifest
    for step in path.split("."):
        value = value.get(step) if isinstance(value, dict) else None
    return value


def field_text(manifest: Manifest, path: str) -> str:
    """Return the value at a dotted path as a field selector compares it; empty if the field is missing."""
    match value := value_at(manifest, path):
        case None:
            return ""
        case bool():
            return "true" if value else "false"
        case _:
            return str(value)
