"""Group commit: items that threads send while a call is under way travel together in the next call.

One rule: no thread returns before its item has been sent, and every thread of a group gets the error if that failed.
"""

import threading
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

Item = TypeVar("Item")


class _Group(Generic[Item]):
    """The items of one call, and its result."""

    def __init__(self) -> None:
        self.items: list[Item] = []
        self.is_done = False
        self.error: Exception | None = None


class GroupCommit(Generic[Item]):
    """Passes the items of many threads to `send`, with one call at a time."""

    def __init__(self, send: Callable[[Sequence[Item]], None]) -> None:
        self._send = send
        self._gathering = threading.Lock()
        self._sending = threading.Lock()
        self._open: _Group[Item] = _Group()

    def __call__(self, item: Item) -> None:
        """Send an item, perhaps with items of other threads. Raises what `send` raised."""
        with self._gathering:
            group = self._open
            group.items.append(item)
        with self._sending:
            if not group.is_done:
                self._close(group)
        if group.error:
            raise group.error

    def _close(self, group: _Group[Item]) -> None:
        with self._gathering:
            self._open = _Group()
        try:
            self._send(group.items)
        except Exception as error:
            group.error = error
        finally:
            group.is_done = True
