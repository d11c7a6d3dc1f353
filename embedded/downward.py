"""The downward API: a pod's own metadata as text, for its variables and the files of its downwardAPI volumes.

One rule: pure, and the text is the same as the kubelet's.
"""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from embedded import volume_files
from embedded.volume_files import File

_NAMES = ("metadata.name", "metadata.namespace", "metadata.uid")
_WHOLE = ("metadata.labels", "metadata.annotations")
_ENTRY = re.compile(r"metadata\.(labels|annotations)\['(.+)'\]")


def field(path: str, metadata: Mapping[str, Any]) -> str | None:
    """Return a field of a pod's metadata; empty if the pod does not have it, None if the API does not offer it."""
    entry = _ENTRY.fullmatch(path)
    if entry:
        return str((metadata.get(entry[1]) or {}).get(entry[2], ""))
    name = path.removeprefix("metadata.")
    if path in _WHOLE:
        entries: Mapping[str, str] = metadata.get(name) or {}
        return "\n".join(f"{key}={json.dumps(entries[key], ensure_ascii=False)}" for key in sorted(entries))
    return str(metadata[name]) if path in _NAMES else None


def files(volume: Mapping[str, Any], metadata: Mapping[str, Any]) -> Iterator[File]:
    """Yield the files of a volume of an accepted pod; nothing if it is not a downwardAPI volume."""
    source = volume.get("downwardAPI") or {}
    for item in source.get("items") or ():
        text = field(item["fieldRef"]["fieldPath"], metadata) or ""
        yield File(item["path"], text.encode(), volume_files.mode(item, source))


def problems(source: Mapping[str, Any], path: str) -> Iterator[str]:
    """Yield every part of a downwardAPI volume that the node does not support."""
    items = source.get("items") or ()
    yield from volume_files.problems(items, f"{path}.items")
    for index, item in enumerate(items):
        yield from _field_problems(item, f"{path}.items[{index}]")


def _field_problems(item: Mapping[str, Any], path: str) -> Iterator[str]:
    if item.get("resourceFieldRef"):
        yield f"{path}.resourceFieldRef is not supported; use it in a variable"
        return
    field_path = (item.get("fieldRef") or {}).get("fieldPath")
    if not isinstance(field_path, str) or (field_path not in (*_NAMES, *_WHOLE) and not _ENTRY.fullmatch(field_path)):
        yield f"{path}.fieldRef.fieldPath: {field_path!r} is not a field a file can have"
