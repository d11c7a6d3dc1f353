"""Rows of pages, kept as long as they show the same.

One rule: a row is made from what is given for it and from nothing else, so whoever is told the same sees the same row.
"""

from collections.abc import Callable, Hashable
from typing import Any

from coordinator.dashboard.elements import Element

MOST_ROWS = 2048


class KeptRows:
    """The rows of one kind by their names; safe to share between threads."""

    def __init__(self, make: Callable[..., Element], most: int = MOST_ROWS) -> None:
        """`make` returns a row. It is pure, and the arguments of a call are all that the row shows."""
        self._make, self._most = make, most
        self._rows: dict[Hashable, tuple[tuple[Any, ...], Element]] = {}

    def get(self, name: Hashable, *shown: Any) -> Element:
        """Return the row that shows these values: the same object as before if the values of this name are as they
        were."""
        kept = self._rows.get(name)
        if kept is not None and kept[0] == shown:
            return kept[1]
        row = self._make(*shown)
        if len(self._rows) >= self._most:
            self._rows.clear()
        self._rows[name] = shown, row
        return row
