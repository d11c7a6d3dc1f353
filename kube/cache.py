"""The cache of an informer: trimmed values by namespace and name, grouped by one index, up to a resourceVersion.

One rule: every method is atomic and short. The cache returns the changes, and the caller reports them outside the lock.
"""

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")

Key = tuple[str, str]
"""The namespace (empty for cluster-scoped objects) and the name of an object."""

Change = tuple[T | None, T | None]
"""The value before and the value after; None where no object exists."""


@dataclass(frozen=True, slots=True)
class CacheEntry(Generic[T]):
    """A cached object: its uid, its trimmed value, and its index key, if it has one."""

    uid: str
    value: T
    group: str | None


class Cache(Generic[T]):
    """The values of one resource, read by many threads and written by one thread."""

    def __init__(self) -> None:
        self._entries: dict[Key, CacheEntry[T]] = {}
        self._groups: dict[str, dict[Key, T]] = {}
        self._version = 0
        self._changed = threading.Condition()

    @property
    def version(self) -> int:
        """The newest resourceVersion that was read; 0 before the first read, or if the server's versions are not
        numbers.
        """
        return self._version

    def get(self, key: Key) -> T | None:
        """Return one value; None if there is no such object."""
        with self._changed:
            entry = self._entries.get(key)
        return entry.value if entry else None

    def values(self) -> list[T]:
        """Return all values."""
        with self._changed:
            return [entry.value for entry in self._entries.values()]

    def indexed(self, group: str) -> list[T]:
        """Return the values under one index key. The cost grows with their number, not with the cache."""
        with self._changed:
            return list(self._groups.get(group, {}).values())

    def wait_for(self, version: int, timeout: float) -> bool:
        """Wait until the cache has reached a resourceVersion; return False if it has not after `timeout` seconds."""
        with self._changed:
            return self._changed.wait_for(lambda: self._version >= version, timeout)

    def advance(self, version: int) -> None:
        """Record that all changes up to a version are in the cache; 0 has no effect."""
        with self._changed:
            self._reach(version)

    def set(self, key: Key, entry: CacheEntry[T], version: int) -> list[Change[T]]:
        """Store an object. Another uid under its name means that the old object was deleted: two changes."""
        with self._changed:
            before = self._drop(key)
            self._add(key, entry)
            self._reach(version)
        return _changes(before, entry)

    def remove(self, key: Key, version: int) -> list[Change[T]]:
        """Remove a deleted object."""
        with self._changed:
            before = self._drop(key)
            self._reach(version)
        return _changes(before, None)

    def replace(self, entries: Mapping[Key, CacheEntry[T]], version: int) -> list[Change[T]]:
        """Store a whole list in place of the cache; return the differences, the removed objects first."""
        with self._changed:
            before = self._entries
            self._entries, self._groups = {}, {}
            for key, entry in entries.items():
                self._add(key, entry)
            # The version may also decrease: a server restored from a backup counts from its backup.
            self._version = version
            self._changed.notify_all()
        removed = [(entry.value, None) for key, entry in before.items() if key not in entries]
        return [*removed, *_differences(before, entries)]

    def _reach(self, version: int) -> None:
        if version > self._version:
            self._version = version
            self._changed.notify_all()

    def _add(self, key: Key, entry: CacheEntry[T]) -> None:
        self._entries[key] = entry
        if entry.group is not None:
            self._groups.setdefault(entry.group, {})[key] = entry.value

    def _drop(self, key: Key) -> CacheEntry[T] | None:
        entry = self._entries.pop(key, None)
        if entry is not None and entry.group is not None:
            group = self._groups[entry.group]
            del group[key]
            if not group:
                del self._groups[entry.group]
        return entry


def _differences(before: Mapping[Key, CacheEntry[T]], now: Mapping[Key, CacheEntry[T]]) -> list[Change[T]]:
    return [
        change for key, entry in now.items() if before.get(key) != entry for change in _changes(before.get(key), entry)
    ]


def _changes(before: CacheEntry[T] | None, after: CacheEntry[T] | None) -> list[Change[T]]:
    if before is None and after is None:
        return []
    if before is None or after is None or before.uid == after.uid:
        return [(before.value if before else None, after.value if after else None)]
    return [(before.value, None), (None, after.value)]
