"""The downward API: a pod's own metadata as text, for its variables and the files of its downwardAPI volumes.

One rule: pure, and the words are the kubelet's.
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
    """Below the volume's folder."""
    text: str
    mode: int


def field(path: str, metadata: Mapping[str, Any]) -> str | None:
    """A field of a pod's metadata, empty if the pod does not have it; None if it is none that can be asked for."""
    entry = _ENTRY.fullmatch(path)
    if entry:
        return str((metadata.get(entry[1]) or {}).get(entry[2], ""))
    name = path.removeprefix("metadata.")
    if path in _WHOLE:
        entries: Mapping[str, str] = metadata.get(name) or {}
        return "\n".join(f"{key}={json.dumps(entries[key], ensure_ascii=False)}" for key in sorted(entries))
    return str(metadata[name]) if path in _NAMES else None


def files(volume: Mapping[str, Any], metadata: Mapping[str, Any]) -> Iterator[File]:
    """What an accepted volume holds; nothing if it is of another kind."""
    source = volume.get("downwardAPI") or {}
    for item in source.get("items") or ():
        text = field(item["fieldRef"]["fieldPath"], metadata) or ""
        yield File(item["path"], text, item.get("mode") or source.get("defaultMode") or 0o644)


def problems(source: Mapping[str, Any], path: str) -> Iterator[str]:
    """What of a downwardAPI volume cannot be had here."""
    places: list[str] = []
    for index, item in enumerate(source.get("items") or ()):
        found = list(_item_problems(item, f"{path}.items[{index}]"))
        yield from found
        if not found and any(_clash(item["path"], other) for other in places):
            yield f"{path}.items[{index}].path: {item['path']!r} is where another item is"
        places += [] if found else [item["path"]]


def _item_problems(item: Mapping[str, Any], path: str) -> Iterator[str]:
    where = item.get("path")
    if not isinstance(where, str) or not _below(where):
        yield f"{path}.path: {where!r} is not a path below the volume's folder"
    if item.get("resourceFieldRef"):
        yield f"{path}.resourceFieldRef is not supported; use it in a variable"
        return
    wanted = (item.get("fieldRef") or {}).get("fieldPath")
    if not isinstance(wanted, str) or (wanted not in (*_NAMES, *_WHOLE) and not _ENTRY.fullmatch(wanted)):
        yield f"{path}.fieldRef.fieldPath: {wanted!r} is not a field a file can have"
    mode = item.get("mode")
    if mode is not None and not (isinstance(mode, int) and 0 <= mode <= 0o777):
        yield f"{path}.mode: must be between 0 and 511"


def _below(path: str) -> bool:
    return "\0" not in path and not {"", ".", ".."} & set(path.split("/"))


def _clash(path: str, other: str) -> bool:
    """Whether one would be where the other is, or has to have its folder."""
    return f"{path}/".startswith(f"{other}/") or f"{other}/".startswith(f"{path}/")
