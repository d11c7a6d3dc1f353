"""The API server's times as seconds since the epoch.

One rule: pure; a text that is not a time gives None.
"""

from datetime import UTC, datetime


def seconds(text: object) -> float | None:
    """Return an RFC 3339 time as seconds since the epoch; None for anything else."""
    try:
        found = datetime.fromisoformat(text) if isinstance(text, str) else None
    except ValueError:
        return None
    return None if found is None else (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()


def text(seconds: float) -> str:
    """Return seconds since the epoch as an RFC 3339 time in whole seconds."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
