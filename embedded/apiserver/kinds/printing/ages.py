"""How long ago something was, in as few characters as a column of `kubectl get` has.

One rule: the units get coarser as the time gets longer, exactly as kubectl's own do; scripts read these words.
"""

from crds import timestamps

_MINUTE, _HOUR, _DAY, _YEAR = 60, 3600, 86_400, 365 * 86_400


def ago(moment: object, now: float) -> str:
    """The time since a metav1.Time; `<unknown>` if there is none, `<invalid>` if it is not one."""
    if not moment:
        return "<unknown>"
    try:
        then = timestamps.parse_seconds(str(moment))
    except ValueError:
        return "<invalid>"
    return human(now - then)


def human(seconds: float) -> str:
    """A duration: seconds up to two minutes, then minutes, hours, days and years, with a second unit where it tells."""
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
