"""The latest changes of one resource, from which watches resume.

One rule: a journal never skips a change. A request for a version before its window is refused as expired.
"""

import itertools
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from embedded.apiserver.status_errors import expired
from embedded.apiserver.storage.objects import StoredObject

WINDOW = 10_000
"""The most changes to remember per resource: the server writes as many in seconds at its highest rate, in hours at
usual rates."""

MOST_BYTES = 64 * 1024 * 1024
"""The most bytes of these changes together: large objects are remembered for a shorter time."""

EventKind = Literal["ADDED", "MODIFIED", "DELETED"]


@dataclass(frozen=True, slots=True)
class Change:
    """One committed write."""

    kind: EventKind
    object: StoredObject
    """The new state; for a deletion the last state, with the deletion's resourceVersion."""
    before: StoredObject | None


Subscriber = Callable[[Change], None]


class Journal:
    """The latest changes of one resource, and the subscribers to the next changes."""

    def __init__(self, floor: int, window: int = WINDOW) -> None:
        self._changes: deque[Change] = deque()
        self._window = window
        self._size = 0
        self._floor = floor
        self._subscribers: set[Subscriber] = set()

    def __len__(self) -> int:
        return len(self._changes)

    def publish(self, change: Change) -> None:
        """Remember a change and pass it to all subscribers."""
        self._changes.append(change)
        self._size += len(change.object.raw)
        while len(self._changes) > self._window or self._size > MOST_BYTES:
            forgotten = self._changes.popleft().object
            self._floor = forgotten.version
            self._size -= len(forgotten.raw)
        for subscriber in tuple(self._subscribers):
            subscriber(change)

    def since(self, version: int, newest: int) -> list[Change]:
        """Return all changes after a resourceVersion, oldest first.

        Raise StatusError (Expired) if some changes are forgotten.
        """
        if version < self._floor or version > newest:
            raise expired(f"too old resource version: {version} ({newest})")
        newer = itertools.takewhile(lambda change: change.object.version > version, reversed(self._changes))
        return list(newer)[::-1]

    def subscribe(self, subscriber: Subscriber) -> None:
        """Call the subscriber for every change from now on."""
        self._subscribers.add(subscriber)

    def unsubscribe(self, subscriber: Subscriber) -> None:
        """Stop calling the subscriber."""
        self._subscribers.discard(subscriber)
