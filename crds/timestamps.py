"""RFC 3339 times, as Kubernetes and RQ write them.

One rule: pure. Every time is formatted in UTC with the suffix Z, and this is the one module that knows the format.

    function             example                        used for
    format_time          2025-01-31T12:00:05Z           metav1.Time
    format_micro_time    2025-01-31T12:00:05.250000Z    metav1.MicroTime, times that torchq records
"""

from datetime import UTC, datetime


def format_time(moment: datetime | float) -> str:
    """Return a datetime, or seconds since the epoch, as text with whole seconds; fractions are cut off."""
    return _format(moment, "seconds")


def format_micro_time(moment: datetime | float) -> str:
    """Return a datetime, or seconds since the epoch, as text with microseconds."""
    return _format(moment, "microseconds")


def parse(text: str) -> datetime:
    """Return the datetime that an RFC 3339 text stands for.

    The other forms of ISO 8601 are read, too; only they may lack a time zone. Raise ValueError for any other text.
    """
    return datetime.fromisoformat(text)


def parse_seconds(text: str) -> float:
    """Return the seconds since the epoch that an RFC 3339 text stands for. Raise ValueError for any other text."""
    return datetime.fromisoformat(text).timestamp()


def seconds_or_none(value: object) -> float | None:
    """Return the seconds since the epoch that a value stands for, or None if it is no time.

    A time without a zone counts as UTC.
    """
    if not isinstance(value, str):
        return None
    try:
        moment = datetime.fromisoformat(value)
    except ValueError:
        return None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _format(moment: datetime | float, precision: str) -> str:
    utc = moment.astimezone(UTC) if isinstance(moment, datetime) else datetime.fromtimestamp(moment, UTC)
    return utc.isoformat(timespec=precision).removesuffix("+00:00") + "Z"
