"""Ages and durations in words.

One rule: pure; who calls gives the time.
"""

from datetime import datetime

from coordinator.query.questions import Document
from crds import timestamps


def age(since: str | None, now: datetime) -> str:
    """Format the time since a timestamp in the one or two largest units: 45s, 12m, 3h20m, 5d4h."""
    return duration((now - timestamps.parse(since)).total_seconds()) if since else "-"


def seconds_since(stamp: str | None, now: datetime) -> float | None:
    """Return the seconds since a timestamp; None without a timestamp."""
    return max(0.0, round((now - timestamps.parse(stamp)).total_seconds(), 3)) if stamp else None


def duration(length: float | None) -> str:
    """Format seconds in the one or two largest units."""
    if length is None:
        return "-"
    seconds = max(0, int(length))
    minutes, hours, days = seconds // 60, seconds // 3600, seconds // 86_400
    if minutes < 2:
        return f"{seconds}s"
    if hours < 2:
        return f"{minutes}m"
    if days < 2:
        return f"{hours}h{minutes % 60}m" if minutes % 60 else f"{hours}h"
    return f"{days}d{hours % 24}h" if hours % 24 else f"{days}d"


def age_of(item: Document, now: datetime) -> str:
    """Return the age of an object."""
    return age(item["metadata"].get("creationTimestamp"), now)


def creation_order(item: Document) -> str | None:
    """Return a sort key that puts the youngest object first, as in a column of ages."""
    stamp = item["metadata"].get("creationTimestamp")
    return None if stamp is None else "".join(chr(255 - ord(letter)) for letter in stamp)
