"""The largest entries of a folder, for the message about code that is too large.

One rule: a folder is named as long as no single entry makes up most of it.
"""

from collections.abc import Mapping
from typing import NamedTuple

SHOWN = 10
_MOST_OF_IT = 0.6


class LargeEntry(NamedTuple):
    """A file, or a folder with its slash, and its size in bytes."""

    path: str
    size: int


def largest(sizes: Mapping[str, int], count: int = SHOWN) -> list[LargeEntry]:
    """Return the largest entries, largest first. `sizes` has the size of each file by its path."""
    totals: dict[str, dict[str, int]] = {}
    for path, size in sizes.items():
        parent = ""
        while True:
            end = path.find("/", len(parent))
            child = path if end < 0 else path[: end + 1]
            children = totals.setdefault(parent, {})
            children[child] = children.get(child, 0) + size
            if end < 0:
                break
            parent = child
    entries = [_narrowed(LargeEntry(path, size), totals) for path, size in totals.get("", {}).items()]
    return sorted(entries, key=lambda entry: (-entry.size, entry.path))[:count]


def _narrowed(entry: LargeEntry, totals: Mapping[str, Mapping[str, int]]) -> LargeEntry:
    """Return the deepest entry that makes up most of a folder."""
    while children := totals.get(entry.path):
        path, size = max(children.items(), key=lambda item: item[1])
        if size < _MOST_OF_IT * entry.size:
            break
        entry = LargeEntry(path, size)
    return entry


def size_text(size: int) -> str:
    """Format a number of bytes as people read it: 212 KiB, 1.3 MiB."""
    if size < 1024:
        return f"{size} B"
    amount = float(size)
    for unit in ("KiB", "MiB", "GiB"):
        amount /= 1024
        if amount < 1023.5 or unit == "GiB":
            break
    return f"{amount:.1f} {unit}" if amount < 10 else f"{amount:.0f} {unit}"
