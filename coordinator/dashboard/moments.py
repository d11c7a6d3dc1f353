"""Waits as the times at which they began.

One rule: pure. A wait grows each second, and the time at which it began does not: pages show the time, and the browser
counts. The time is known from two clocks and a request on its way, so it trembles; a time that hardly differs from the
one before stays as it was.
"""

from collections.abc import Iterable, Mapping

from crds import timestamps

TREMBLE_SECONDS = 3.0
"""The difference below which a time counts as the same."""
Moments = Mapping[str, float]
"""Times by the name of what began then, in seconds since 1970."""


def began(waits: Iterable[tuple[str, float | None]], now: float, before: Moments) -> dict[str, float]:
    """Return when waits began that have lasted for so many seconds now; those of before where they are the same."""
    found = {name: now - seconds for name, seconds in waits if seconds is not None}
    return {name: _steady(moment, before.get(name)) for name, moment in found.items()}


def stamp(moment: float | None) -> str:
    """Return a time as pages write it; empty if there is none."""
    return "" if moment is None else timestamps.format_time(round(moment))


def _steady(moment: float, before: float | None) -> float:
    return moment if before is None or abs(moment - before) > TREMBLE_SECONDS else before
