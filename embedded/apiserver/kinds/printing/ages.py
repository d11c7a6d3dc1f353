"""The age of an object in the short format of `kubectl get`.

One rule: the units become coarser with the age, exactly as in kubectl, because scripts read these texts.
"""

from crds import timestamps

_MINUTE, _HOUR, _DAY, _YEAR = 60, 3600, 86_400, 365 * 86_400


def ago(moment: object, now: float) -> str:
    """Return the time since a metav1.Time; `<unknown>` for an empty value, `<invalid>` for any other value."""
    if not moment:
        return "<unknown>"
    try:
        then = timestamps.parse_seconds(str(moment))
    except ValueError:
        return "<invalid>"
    return human(now - then)


def human(seconds: float) -> str:
    """Return a duration as text: seconds up to two minutes, then minutes, hours, days and years.

    Short durations of each unit have a second, smaller unit: `5m30s`, but `30m`.
    """
    whole = int(seconds)
    if whole < -1:
        return "<invalid>"
    if whole < 2 * _MINUTE:
        return f"{max(whole, 0)}s"
    if whole < 10 * _MINUTE:
        return _two(whole, _MINUTE, "m", 1, "s")
    if whole < 3 * _HOUR:
        return f"{whole // _MINUTE}m"
    if whole < 8 * _HOUR:
        return _two(whole, _HOUR, "h", _MINUTE, "m")
    if whole < 2 * _DAY:
        return f"{whole // _HOUR}h"
    if whole < 8 * _DAY:
        return _two(whole, _DAY, "d", _HOUR, "h")
    if whole < 2 * _YEAR:
        return f"{whole // _DAY}d"
    if whole < 8 * _YEAR:
        return _two(whole, _YEAR, "y", _DAY, "d")
    return f"{whole // _YEAR}y"


def _two(seconds: int, unit: int, letter: str, lesser: int, lesser_letter: str) -> str:
    rest = seconds % unit // lesser
    return f"{seconds // unit}{letter}" + (f"{rest}{lesser_letter}" if rest else "")
