"""The spans of time that people ask about: a month, or from one time to another, in a time zone.

One rule: a text that is no time raises InvalidQuery, in words that begin with the name of the parameter.

    parameter       examples
    month           2026-11
    since, until    90m, 12h, 7d, 4w (before now); 2026-11-20; 2026-11-20T09:00; 2026-11-20T09:00:00Z
    tz              UTC (the default), Europe/Berlin

A day begins and ends by the clocks of the zone: one in which summer time begins has 23 hours. A time that the clocks
show twice means the first of the two.
"""

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import NamedTuple
from zoneinfo import ZoneInfo

from history.errors import InvalidQuery
from history.store import Span

LONGEST_DAYS = 3_660
"""The longest span, in days: ten years."""
FIRST_YEAR, LAST_YEAR = 1970, 2200
UNITS = {"m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_AGO = re.compile(r"([0-9]{1,6})([mhdw])")
_MONTH = re.compile(r"([0-9]{4})-([0-9]{1,2})")
_MONTHS = 12
_TIME = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}([T ][0-9]{2}:[0-9]{2}(:[0-9]{2}([.][0-9]{1,6})?)?(Z|[+-][0-9]{2}:[0-9]{2})?)?"
)
_ZONE = re.compile(r"[A-Za-z0-9_+/-]{1,64}")


class Period(NamedTuple):
    """A span of time, and the zone in which its times are read and shown."""

    span: Span
    zone: ZoneInfo


def parse(query: Mapping[str, str], now: int) -> Period | None:
    """Return the span that a query asks for; None if it asks for none. Raises InvalidQuery."""
    zone = parse_zone(query.get("tz", ""))
    month, since, until = (query.get(name, "") for name in ("month", "since", "until"))
    if month and (since or until):
        raise InvalidQuery("month: name a month, or a time with since and until, not both")
    if month:
        span = _of_month(month, zone, now)
    elif since or until:
        start = moment("since", since, zone, now) if since else 0
        span = Span(start, moment("until", until, zone, now) if until else max(now, start))
        _check(span, since, now)
    else:
        return None
    return Period(span, zone)


def this_month(zone: ZoneInfo, now: int) -> Span:
    """Return the month of a time in a zone."""
    local = datetime.fromtimestamp(now, zone)
    return _month(local.year, local.month, zone)


def parse_zone(name: str) -> ZoneInfo:
    """Return a time zone by its name; an empty name is UTC. Raises InvalidQuery."""
    try:
        if _ZONE.fullmatch(name or "UTC"):
            return ZoneInfo(name or "UTC")
    except (LookupError, ValueError, OSError, ImportError):
        pass
    raise InvalidQuery(
        f"tz: {name[:64]!r} is not a time zone: write one such as UTC, Europe/Berlin or America/New_York"
    )


def moment(parameter: str, text: str, zone: ZoneInfo, now: int) -> int:
    """Return the time that a text means, in whole seconds since the epoch. Raises InvalidQuery."""
    if ago := _AGO.fullmatch(text):
        return now - int(ago[1]) * UNITS[ago[2]]
    try:
        local = datetime.fromisoformat(text) if _TIME.fullmatch(text) else None
    except ValueError:
        local = None
    if local is None:
        raise InvalidQuery(
            f"{parameter}: {text[:64]!r} is not a time: write 7d, 12h, a date such as 2026-11-20, or 2026-11-20T09:00"
        )
    if not FIRST_YEAR < local.year <= LAST_YEAR:
        raise InvalidQuery(f"{parameter}: {text} is not in the years from {FIRST_YEAR + 1} to {LAST_YEAR}")
    return int((local if local.tzinfo else local.replace(tzinfo=zone)).timestamp())


def _check(span: Span, since: str, now: int) -> None:
    if since and span.start > now:
        raise InvalidQuery("since: this time has not come yet")
    if span.start >= span.end:
        raise InvalidQuery(f"since: {_text(span.start)} is not before {_text(span.end)}")
    if since and span.end - span.start > LONGEST_DAYS * UNITS["d"]:
        raise InvalidQuery(f"since: a span has at most {LONGEST_DAYS} days; name a later time, or an earlier until")


def _text(seconds: int) -> str:
    return datetime.fromtimestamp(max(0, seconds), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _of_month(text: str, zone: ZoneInfo, now: int) -> Span:
    found = _MONTH.fullmatch(text)
    year, number = (int(found[1]), int(found[2])) if found else (0, 0)
    if not (FIRST_YEAR < year < LAST_YEAR and 1 <= number <= _MONTHS):
        raise InvalidQuery(f"month: {text[:64]!r} is not a month: write YYYY-MM, as in 2026-11")
    span = _month(year, number, zone)
    if span.start > now:
        raise InvalidQuery(f"month: {text} has not begun yet")
    return span


def _month(year: int, number: int, zone: ZoneInfo) -> Span:
    after = (year + 1, 1) if number == _MONTHS else (year, number + 1)
    starts = (datetime(*each, 1, tzinfo=zone) for each in ((year, number), after))
    return Span(*(int(start.timestamp()) for start in starts))
