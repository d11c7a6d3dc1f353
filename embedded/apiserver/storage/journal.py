"""What happened to one resource lately, for watches to resume from.

One rule: a journal never skips. Whoever asks for a point before its window is told that it has expired.
"""

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

from embedded.apiserver.status_errors import expired
from embedded.apiserver.storage.objects import Stored

WINDOW = 10_000
"""Changes remembered per resource: seconds at the fastest rate this server writes, hours at usual ones."""

MOST_BYTES = 64 * 1024 * 1024
"""What these changes may take together: large objects are remembered for a shorter time."""

EventKind = Literal["ADDED", "MODIFIED", "DELETED"]


@dataclass(frozen=True, slots=True)
class Change:
    """One committed write."""

    kind: EventKind
    object: Stored
    """The new state; of a deletion the last one, with the deletion's resourceVersion."""
    before: Stored | None


Listener = Callable[[Change], None]


class Journal:
    """The latest changes of one resource, and who wants to hear of the next."""

    def __init__(self, floor: int, window: int = WINDOW) -> None:
        self._changes: deque[Change] = deque()
        self._window = window
        self._size = 0
        self._floor = floor
        self._listeners: set[Listener] = set()

    def __len__(self) -> int:
        return len(self._changes)

    def publish(self, change: Change) -> None:
        """Remember a change and tell everybody."""
        self._changes.append(change)
        self._size += len(change.object.raw)
        while len(self._changes) > self._window or self._size > MOST_BYTES:
            forgotten = self._changes.popleft().object
            self._floor = forgotten.version
            self._size -= len(forgotten.raw)
        for listener in tuple(self._listeners):
            listener(change)

    def since(self, version: int, newest: int) -> list[Change]:
        """All changes after a resourceVersion, oldest first. Refused (410) if some of them are forgotten."""
        if version < self._floor or version > newest:
            raise expired(f"too old resource version: {version} ({newest})")
        return list(self._newer(version))[::-1]

    def _newer(self, version: int) -> Iterator[Change]:
        for change in reversed(self._changes):
            if change.object.version <= version:
                return
            yield change

    def listen(self, listener: Listener) -> None:
        """Hear of every change from now on."""
        self._listeners.add(listener)

    def leave(self, listener: Listener) -> None:
        """Hear no more."""
        self._listeners.discard(listener)
