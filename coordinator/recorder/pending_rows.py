"""The rows that the recorder has not written yet.

One rule: bounded. Of a row that changes, only the newest state waits. Where the database is away for too long, rows of
objects that still exist are dropped first: these objects are read again.
"""

import threading
from collections.abc import Iterable

from history import precedence
from history.precedence import Key
from history.rows import Row

MOST = 50_000
"""The most rows that wait. Rows of objects that are gone may be as many again."""


class PendingRows:
    """Rows by their keys. Any thread may use the object."""

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._rows: dict[Key, Row] = {}
        self._has_dropped = False

    def put(self, rows: Iterable[Row], *, is_gone: bool = False) -> None:
        """Add rows. `is_gone` says that they are of an object that is gone, which nobody can read again."""
        with self._lock:
            most = self._most * (2 if is_gone else 1)
            for row in rows:
                key = precedence.key(row)
                kept = self._rows.get(key)
                if kept is None and len(self._rows) >= most:
                    self._has_dropped = True
                elif kept is None or precedence.wins(row, kept):
                    self._rows[key] = row

    def take(self) -> list[Row]:
        """Remove and return all rows."""
        with self._lock:
            rows, self._rows = self._rows, {}
        return list(rows.values())

    def take_has_dropped(self) -> bool:
        """Return whether rows were dropped since the last call."""
        with self._lock:
            has_dropped, self._has_dropped = self._has_dropped, False
        return has_dropped

    def __len__(self) -> int:
        return len(self._rows)
