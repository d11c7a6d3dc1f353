"""The age of an object in the short format of `kubectl get`.

One rule: the units become coarser with the age, exactly as in kubectl, because scripts read these texts.
"""

import math

from crds import timestamps

_MINUTE, _HOUR, _DAY, _YEAR = 60, 3600, 86_400, 365 * 86_400
_STEPS = (
    (2 * _MINUTE, 1, "s", 0, ""),
    (10 * _MINUTE, _MINUTE, "m", 1, "s"),
    (3 * _HOUR, _MINUTE, "m", 0, ""),
    (8 * _HOUR, _HOUR, "h", _MINUTE, "m"),
    (2 * _DAY, _HOUR, "h", 0, ""),
    (8 * _DAY, _DAY, "d", _HOUR, "h"),
    (2 * _YEAR, _DAY, "d", 0, ""),
    (8 * _YEAR, _YEAR, "y", _DAY, "d"),
    (math.inf, _YEAR, "y", 0, ""),
)
"""Up to which duration a unit and its letter are used, and with which smaller unit; 0 for none."""


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
    if int(seconds) < -1:
        return "<invalid>"
    whole = max(int(seconds), 0)
    _, unit, letter, lesser, lesser_letter = next(step for step in _STEPS if whole < step[0])
    rest = whole % unit // lesser if lesser else 0
    return f"{whole // unit}{letter}" + (f"{rest}{lesser_letter}" if rest else "")
