"""Pictures as shapes: bars, and lines over time.

One rule: pure. A picture says in words what it shows, and a template draws it (`templates/charts.html`). Lengths are
percents of the width of the picture; heights of lines are percents of its height, from the top.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

WHOLE = 100.0
QUOTA_AT = 80.0
"""Where a quota ends in its bar, so that room is left for what is borrowed beyond."""
LEAST_POINTS = 2
SHORTEST = 0.4
"""The length at which the shortest time can still be seen."""
_DIGITS = 2


@dataclass(frozen=True, slots=True)
class Segment:
    """A part of a bar."""

    kind: str
    """Its style: used, idle, borrowed, borrowed-idle, waiting, held, ended, free."""
    start: float
    length: float


@dataclass(frozen=True, slots=True)
class Bar:
    """A horizontal bar."""

    label: str
    """What the bar shows, in words."""
    segments: tuple[Segment, ...] = ()
    track: float = WHOLE
    """Where the empty bar ends."""
    tick: float | None = None
    """Where a target or a limit is marked."""


@dataclass(frozen=True, slots=True)
class Curve:
    """An area below a line, and another line to compare with; either may be missing."""

    label: str
    area: str = ""
    """The outline of the area, as an SVG path."""
    line: str = ""
    """The line, as an SVG path."""


def share_bar(share: float | None, target: float | None, label: str) -> Bar:
    """Return a bar of a share, from 0 to 1, with a tick at the target."""
    filled = _clamped(share or 0.0)
    tick = None if target is None else _rounded(_clamped(target))
    return Bar(label, _segments([("used", filled)]), tick=tick)


def quota_bar(used: float, idle: float, quota: float | None, whole: float | None, label: str) -> Bar:
    """Return a bar of what is used of a quota. Idle growth is the last part of what is used, and what is borrowed is
    beyond the tick at the end of the quota. Without a quota, the bar is what is used of the whole pool."""
    used = max(0.0, used)
    idle = min(max(0.0, idle), used)
    if quota is None:
        most = max(whole or 0.0, used)
        return Bar(label, _segments([("used", _percents(used - idle, most)), ("idle", _percents(idle, most))]))
    quota = max(0.0, quota)
    most = max(quota * WHOLE / QUOTA_AT, used)
    paid = used - idle
    within = min(paid, quota)
    idle_within = min(idle, quota - within)
    parts = [
        ("used", within),
        ("idle", idle_within),
        ("borrowed", paid - within),
        ("borrowed-idle", idle - idle_within),
    ]
    end = _rounded(_percents(quota, most))
    return Bar(label, _segments((kind, _percents(length, most)) for kind, length in parts), track=end, tick=end)


def parts_bar(parts: Sequence[tuple[str, float]], whole: float, label: str) -> Bar:
    """Return a bar of parts of a whole, one after the other. Parts that are more than the whole are the whole."""
    total = max(whole, sum(max(0.0, amount) for _, amount in parts))
    return Bar(label, _segments((kind, _percents(max(0.0, amount), total)) for kind, amount in parts))


def time_bar(spans: Iterable[tuple[str, float, float]], start: float, end: float, label: str) -> Bar:
    """Return times, each from one moment to another, within a longer time. What is outside is cut off."""
    length = end - start
    if length <= 0:
        return Bar(label)
    found = []
    for kind, first, last in spans:
        begin, finish = (_clamped((moment - start) / length) for moment in (first, last))
        if finish > begin:
            begin = min(begin, WHOLE - SHORTEST)
            found.append(Segment(kind, _rounded(begin), _rounded(max(finish - begin, SHORTEST))))
    return Bar(label, tuple(found))


def curve(area: Sequence[float | None], line: Sequence[float | None], label: str) -> Curve:
    """Return values from 0 to 1, each for a step of the same length, as an area and a line of steps. A step without a
    value is left out."""
    return Curve(label, _area(area), _steps(line))


def trend(values: Sequence[float], label: str) -> Curve:
    """Return a line through values at equal distances, from the lowest at the bottom to the highest at the top. Values
    that are no numbers, such as a loss that has diverged, are left out."""
    finite = [value for value in values if math.isfinite(value)]
    if len(finite) < LEAST_POINTS:
        return Curve(label)
    low, high = min(finite), max(finite)
    step = WHOLE / (len(finite) - 1)
    heights = (0.5 if high == low else (high - value) / (high - low) for value in finite)
    points = [(index * step, WHOLE * height) for index, height in enumerate(heights)]
    return Curve(label, line="M" + "L".join(f"{_rounded(x):g} {_rounded(y):g}" for x, y in points))


def _area(values: Sequence[float | None]) -> str:
    step = WHOLE / len(values) if values else 0.0
    found = []
    for index, value in enumerate(values):
        if value:
            left, right, top = (_rounded(each) for each in (index * step, (index + 1) * step, WHOLE - _clamped(value)))
            found.append(f"M{left:g} 100V{top:g}H{right:g}V100Z")
    return "".join(found)


def _steps(values: Sequence[float | None]) -> str:
    step = WHOLE / len(values) if values else 0.0
    found, is_drawing = [], False
    for index, value in enumerate(values):
        if value is None:
            is_drawing = False
            continue
        left, right, top = (_rounded(each) for each in (index * step, (index + 1) * step, WHOLE - _clamped(value)))
        found.append(f"V{top:g}H{right:g}" if is_drawing else f"M{left:g} {top:g}H{right:g}")
        is_drawing = True
    return "".join(found)


def _segments(parts: Iterable[tuple[str, float]]) -> tuple[Segment, ...]:
    """Return parts one after the other. Empty ones are left out."""
    found, start = [], 0.0
    for kind, length in parts:
        if length > 0:
            found.append(Segment(kind, _rounded(start), _rounded(length)))
        start += length
    return tuple(found)


def _percents(part: float, whole: float) -> float:
    return WHOLE * part / whole if whole else 0.0


def _clamped(part: float) -> float:
    """Return a part from 0 to 1 as percents."""
    return WHOLE * min(1.0, max(0.0, part))


def _rounded(length: float) -> float:
    return round(length, _DIGITS)
