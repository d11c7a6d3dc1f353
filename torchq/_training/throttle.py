"""Which reports are printed when there are too many.

One rule: at most one report in `seconds`. One that has to wait is replaced only by a newer one of the same names, so
that an accuracy given once is not lost among a thousand losses.
"""

from __future__ import annotations

from collections.abc import Mapping

from torchq._training.json_values import Number

Report = Mapping[str, Number]
MOST_WAITING = 16
"""The most reports that wait, each of other names."""


class Throttle:
    """The reports that wait. Not thread-safe."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._waiting: dict[tuple[str, ...], Report] = {}
        self._next = float("-inf")

    def add(self, report: Report, now: float) -> Report | None:
        """Take a report; return the one to print now, if one may be printed: the one that has waited longest."""
        self._waiting[tuple(sorted(report))] = report
        if now >= self._next:
            self._next = now + self._seconds
            return self._waiting.pop(next(iter(self._waiting)))
        if len(self._waiting) > MOST_WAITING:
            del self._waiting[next(iter(self._waiting))]
        return None

    def take_all(self) -> list[Report]:
        """Return the reports that wait, and forget them."""
        reports = list(self._waiting.values())
        self._waiting.clear()
        return reports
