"""When changes of queues and nodes take effect.

One rule: what an admin changes together takes effect together.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass

PATIENCE = 8
"""The longest wait of settings that keep changing, as a multiple of `settle_seconds`."""


@dataclass(frozen=True, slots=True)
class _Span:
    """The times of the first and the last change that have not taken effect yet."""

    first: float
    last: float


class SettingsChanges:
    """The changes that have not taken effect yet; safe to share between threads."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._pending: _Span | None = None

    def note(self) -> None:
        """Record a change now."""
        with self._lock:
            now = self._clock()
            self._pending = _Span(self._pending.first if self._pending else now, now)

    def take(self, settle_seconds: float) -> bool:
        """Return whether recorded changes are to take effect now, and forget them if so.

        Changes take effect once nothing has changed for `settle_seconds`. If the changes go on, they take effect after
        PATIENCE times as long.
        """
        with self._lock:
            pending, now = self._pending, self._clock()
            settled = pending is not None and (
                now - pending.last >= settle_seconds or now - pending.first >= PATIENCE * settle_seconds
            )
            if settled:
                self._pending = None
            return settled
