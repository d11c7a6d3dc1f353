"""The queues that have series of their own.

One rule: the series of a process are bounded, and the series of a queue are removed when the queue is deleted. All
other queues share the series with an empty name.
"""

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

OTHERS = ""
"""The label of all queues without series of their own."""

Exists = Callable[[str], bool | None]
"""A function that returns whether there is a queue of a name; None: that is not known."""


def not_known(_: str) -> bool | None:
    """Return that it is not known whether a queue exists."""
    return None


@dataclass(slots=True)
class QueueNames:
    """The first queues that were named, up to a number; safe to share between threads."""

    most: int
    exists: Exists = not_known
    _names: dict[str, None] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def label(self, queue: str) -> str:
        """Return the label of a queue: its name, or the common label of all other queues."""
        if queue in self._names:
            return queue
        if not queue or self.exists(queue) is False:
            return OTHERS
        with self._lock:
            if len(self._names) >= self.most and queue not in self._names:
                return OTHERS
            self._names[queue] = None
        return queue

    def __contains__(self, queue: str) -> bool:
        """Return whether a queue has series of its own."""
        return queue in self._names

    def forget_deleted(self) -> frozenset[str]:
        """Forget the queues that exist no longer, and return their names."""
        with self._lock:
            gone = frozenset(name for name in self._names if self.exists(name) is False)
            return self._drop(gone)

    def forget(self, queues: Iterable[str]) -> None:
        """Forget some queues."""
        with self._lock:
            self._drop(frozenset(queues))

    def keep(self, queues: frozenset[str]) -> frozenset[str]:
        """Forget all queues but the given ones, and return the names of the forgotten queues."""
        with self._lock:
            return self._drop(self._names.keys() - queues)

    def _drop(self, gone: Iterable[str]) -> frozenset[str]:
        dropped = frozenset(name for name in gone if name in self._names)
        for name in dropped:
            del self._names[name]
        return dropped
