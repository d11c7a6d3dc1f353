"""The files that the node writes into a pod's volumes, and the paths that they may have.

One rule: pure, and no path leaves the folder of its volume.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

DEFAULT_MODE = 0o644


@dataclass(frozen=True, slots=True)
class File:
    """One file of a volume."""

    path: str
    """The path relative to the volume's folder."""
    content: bytes
    mode: int


def problems(items: Sequence[Any], path: str) -> Iterator[str]:
    """Yield the problems of the paths and modes of a volume's items; each text begins with the path of its field."""
    paths: list[str] = []
    for index, item in enumerate(items):
        item_problems = list(_item_problems(item, f"{path}[{index}]"))
        yield from item_problems
        if not item_problems and any(_overlap(item["path"], other) for other in paths):
            yield f"{path}[{index}].path: {item['path']!r} overlaps with the path of another item"
        paths += [] if item_problems else [item["path"]]


def mode_problems(mode: Any, path: str) -> Iterator[str]:
    """Yield the problems of the mode of a file; None is the mode of the volume."""
    if mode is not None and not (isinstance(mode, int) and 0 <= mode <= 0o777):
        yield f"{path}: must be between 0 and 511"


def mode(item: Any, source: Any) -> int:
    """Return the mode of the file of an item, else the mode of its volume."""
    given = next((each for each in (item.get("mode"), source.get("defaultMode")) if each is not None), DEFAULT_MODE)
    return int(given)


def _item_problems(item: Any, path: str) -> Iterator[str]:
    file_path = item.get("path")
    if not isinstance(file_path, str) or "\0" in file_path or {"", ".", ".."} & set(file_path.split("/")):
        yield f"{path}.path: {file_path!r} is not a path below the volume's folder"
    yield from mode_problems(item.get("mode"), f"{path}.mode")


def _overlap(path: str, other: str) -> bool:
    """Return whether two paths are the same, or one would be a folder on the path of the other."""
    return f"{path}/".startswith(f"{other}/") or f"{other}/".startswith(f"{path}/")
