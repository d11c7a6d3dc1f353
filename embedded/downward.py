"""The downward API: a pod's own metadata as text, for its variables and the files of its downwardAPI volumes.

One rule: pure, and the text is the same as the kubelet's.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

_NAMES = ("metadata.name", "metadata.namespace", "metadata.uid")
_WHOLE = ("metadata.labels", "metadata.annotations")
_ENTRY = re.compile(r"metadata\.(labels|annotations)\['(.+)'\]")


@dataclass(frozen=True, slots=True)
class File:
    """One file of a volume."""

    path: str
    """The path relative to the volume's folder."""
    text: str
    mode: int


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
        yield File(item["path"], text, item.get("mode") or source.get("defaultMode") or 0o644)


def problems(source: Mapping[str, Any], path: str) -> Iterator[str]:
    """Yield every part of a downwardAPI volume that the node does not support."""
    paths: list[str] = []
    for index, item in enumerate(source.get("items") or ()):
        item_problems = list(_item_problems(item, f"{path}.items[{index}]"))
        yield from item_problems
        if not item_problems and any(_overlap(item["path"], other) for other in paths):
            yield f"{path}.items[{index}].path: {item['path']!r} overlaps with the path of another item"
        paths += [] if item_problems else [item["path"]]


def _item_problems(item: Mapping[str, Any], path: str) -> Iterator[str]:
    file_path = item.get("path")
    if not isinstance(file_path, str) or not _is_below(file_path):
        yield f"{path}.path: {file_path!r} is not a path below the volume's folder"
    if item.get("resourceFieldRef"):
        yield f"{path}.resourceFieldRef is not supported; use it in a variable"
        return
    field_path = (item.get("fieldRef") or {}).get("fieldPath")
    if not isinstance(field_path, str) or (field_path not in (*_NAMES, *_WHOLE) and not _ENTRY.fullmatch(field_path)):
        yield f"{path}.fieldRef.fieldPath: {field_path!r} is not a field a file can have"
    mode = item.get("mode")
    if mode is not None and not (isinstance(mode, int) and 0 <= mode <= 0o777):
        yield f"{path}.mode: must be between 0 and 511"


def _is_below(path: str) -> bool:
    return "\0" not in path and not {"", ".", ".."} & set(path.split("/"))


def _overlap(path: str, other: str) -> bool:
    """Return whether two paths are the same, or one would be a folder on the path of the other."""
    return f"{path}/".startswith(f"{other}/") or f"{other}/".startswith(f"{path}/")
