"""Durations as people write them: 90s, 45m, 2h, 1h30m, 7d.

One rule: pure; a number without a unit is refused, since its unit would be a guess.
"""

import re

_UNITS = {"d": 86_400, "h": 3_600, "m": 60, "s": 1}
_DURATION = re.compile("".join(f"(?:([0-9]{{1,9}}){unit})?" for unit in _UNITS))


def parse(text: str) -> int:
    """Return the seconds of a duration. Raises ValueError for a text that is none."""
    found = _DURATION.fullmatch(text)
    if found is None or not text:
        raise ValueError(f"must be a duration, as in 90s, 45m, 2h or 1h30m, not {text!r}")
    return sum(int(amount or 0) * seconds for amount, seconds in zip(found.groups(), _UNITS.values(), strict=True))
