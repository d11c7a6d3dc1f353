"""Which reports are printed when they come in a flood.

One rule: every report is printed at once and in order, until they come faster than `RATE` for long. From then on,
reports are thinned to that rate, and each line that follows on left-out reports has their number. A report is left out
only for a newer report with the same names, so that an accuracy given once is not lost among a thousand losses.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Report = Mapping[str, Any]
RATE = 100.0
"""The reports in a second that may be printed for ever."""
FLOOD_SECONDS = 10.0
"""For so long, reports may come at twice the rate; at a higher one, for as long as these are as many."""
LEFT_OUT = "left_out"
"""The name under which a printed report has the number of those that were left out before it."""
MOST_WAITING = 16
"""The most reports that wait, each of other names."""


class Throttle:
    """The reports of one process on their way to its output. Not thread-safe."""

    def __init__(self, rate: float = RATE, seconds: float = FLOOD_SECONDS) -> None:
        self._rate = rate
        self._most = rate * seconds
        self._room = self._most
        """The number of reports that may be printed now (a token bucket)."""
        self._at = float("-inf")
        self._waiting: dict[tuple[str, ...], Report] = {}
        self._left_out = 0

    def add(self, report: Report, now: float) -> list[Report]:
        """Take a report; return those to print now, in the order in which they came."""
        self._room = min(self._most, self._room + (now - self._at) * self._rate)
        self._at = now
        names = tuple(sorted(report))
        if self._waiting.pop(names, None) is not None:
            self._left_out += 1
        self._waiting[names] = report
        if len(self._waiting) > MOST_WAITING:
            del self._waiting[next(iter(self._waiting))]
            self._left_out += 1
        if self._room < 1.0:
            return []
        lines = self.take_all()
        self._room -= len(lines)
        return lines

    def take_all(self) -> list[Report]:
        """Return the reports that wait, and forget them."""
        lines, self._waiting = list(self._waiting.values()), {}
        if lines and self._left_out:
            lines[0], self._left_out = {**lines[0], LEFT_OUT: self._left_out}, 0
        return lines
