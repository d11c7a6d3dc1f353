"""Group commit: calls that arrive while one is on its way to the server travel together with the next one.

One rule: nobody returns before its own item has been sent, and everybody learns if that failed.
"""

import threading
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

Item = TypeVar("Item")


class _Group(Generic[Item]):
    """The items of one sending."""

    def __init__(self) -> None:
        self.items: list[Item] = []
        self.sent = False
        self.error: Exception | None = None


class GroupCommit(Generic[Item]):
    """Gives many threads' items to `send`, one call at a time."""

    def __init__(self, send: Callable[[Sequence[Item]], None]) -> None:
        self._send = send
        self._gathering = threading.Lock()
        self._sending = threading.Lock()
        self._open: _Group[Item] = _Group()

    def __call__(self, item: Item) -> None:
        """Send an item, perhaps with others'. Raises what `send` raised."""
        with self._gathering:
            group = self._open
            group.items.append(item)
        with self._sending:
            if not group.sent:
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
            group.sent = True
