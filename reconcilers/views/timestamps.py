"""The API server's times as seconds since the epoch.

One rule: pure; what is no time is None.
"""

from datetime import UTC, datetime


def seconds(text: object) -> float | None:
    """An RFC 3339 time."""
    try:
        found = datetime.fromisoformat(text) if isinstance(text, str) else None
    except ValueError:
        return None
    return None if found is None else (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()


def text(seconds: float) -> str:
    """The same in words, to the second."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
