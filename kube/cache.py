"""What an informer knows: trimmed values by namespace and name, grouped by one index, up to a resourceVersion.

One rule: every method is atomic and short; what changed is returned, and told to others outside the lock.
"""

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")

Key = tuple[str, str]
"""Namespace (empty for cluster-scoped objects) and name."""

Change = tuple[T | None, T | None]
"""The value before and after; None where there was or is no object."""


@dataclass(frozen=True, slots=True)
class Entry(Generic[T]):
    """An object as kept: its uid, its trimmed value, and the index key it is found under, if any."""

    uid: str
    value: T
    group: str | None


class Cache(Generic[T]):
    """The values of one resource, read by many threads and written by one."""

    def __init__(self) -> None:
        self._entries: dict[Key, Entry[T]] = {}
        self._groups: dict[str, dict[Key, T]] = {}
        self._version = 0
        self._changed = threading.Condition()

    @property
    def version(self) -> int:
        """The newest resourceVersion seen; 0 before the first, or if the server's are not numbers."""
        return self._version

    def get(self, key: Key) -> T | None:
        """One value; None if there is no such object."""
        with self._changed:
            entry = self._entries.get(key)
        return entry.value if entry else None

    def values(self) -> list[T]:
        """All values."""
        with self._changed:
            return [entry.value for entry in self._entries.values()]

    def indexed(self, group: str) -> list[T]:
        """The values under one index key, at the cost of as many."""
        with self._changed:
            return list(self._groups.get(group, {}).values())

    def wait_for(self, version: int, timeout: float) -> bool:
        """Wait until the cache has seen a resourceVersion; False if it has not within `timeout` seconds."""
        with self._changed:
            return self._changed.wait_for(lambda: self._version >= version, timeout)

    def advance(self, version: int) -> None:
        """All changes up to a version are in; 0 says nothing."""
        with self._changed:
            self._reach(version)

    def put(self, key: Key, entry: Entry[T], version: int) -> list[Change[T]]:
        """Take an object as it is now. Another uid under the name means that the old object is gone: two changes."""
        with self._changed:
            before = self._drop(key)
            self._add(key, entry)
            self._reach(version)
        return _changes(before, entry)

    def remove(self, key: Key, version: int) -> list[Change[T]]:
        """An object is gone."""
        with self._changed:
            before = self._drop(key)
            self._reach(version)
        return _changes(before, None)

    def replace(self, entries: Mapping[Key, Entry[T]], version: int) -> list[Change[T]]:
        """Take a whole list; the changes against what was known, the vanished first. What is equal is no change."""
        with self._changed:
            before = self._entries
            self._entries, self._groups = {}, {}
            for key, entry in entries.items():
                self._add(key, entry)
            # Backwards too: a server restored from a backup counts from there.
            self._version = version
            self._changed.notify_all()
        gone = [(entry.value, None) for key, entry in before.items() if key not in entries]
        return [*gone, *_differences(before, entries)]

    def _reach(self, version: int) -> None:
        if version > self._version:
            self._version = version
            self._changed.notify_all()

    def _add(self, key: Key, entry: Entry[T]) -> None:
        self._entries[key] = entry
        if entry.group is not None:
            self._groups.setdefault(entry.group, {})[key] = entry.value

    def _drop(self, key: Key) -> Entry[T] | None:
        entry = self._entries.pop(key, None)
        if entry is not None and entry.group is not None:
            group = self._groups[entry.group]
            del group[key]
            if not group:
                del self._groups[entry.group]
        return entry


def _differences(before: Mapping[Key, Entry[T]], now: Mapping[Key, Entry[T]]) -> list[Change[T]]:
    return [
        change for key, entry in now.items() if before.get(key) != entry for change in _changes(before.get(key), entry)
    ]


def _changes(before: Entry[T] | None, after: Entry[T] | None) -> list[Change[T]]:
    if before is None and after is None:
        return []
    if before is None or after is None or before.uid == after.uid:
        return [(before.value if before else None, after.value if after else None)]
    return [(before.value, None), (None, after.value)]
