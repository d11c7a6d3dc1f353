"""Several holds of a job in one row: which of its rows count, and how such a row is cut by time.

One rule: pure. No room is counted twice and none is lost: a row of several holds counts where one of these holds is
not known to its end, and then the holds in it that are known do not count.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from history.precedence import EXACT, known_end, wins
from history.rows import HoldRow

Ranges = tuple[tuple[int, int], ...]


class KeptHolds(NamedTuple):
    """The rows of a job that are kept."""

    counted: tuple[HoldRow, ...]
    """Those that count, by number."""
    hidden: tuple[HoldRow, ...]
    """Those in a row of several holds: they count again once the last of them is known."""


def keep(holds: Iterable[HoldRow]) -> KeptHolds:
    """Return which rows of one job are kept. The others add nothing to them, whatever comes later."""
    rows = sorted(holds, key=lambda hold: (hold.number, hold.numbers))
    parts = [hold for hold in rows if not hold.numbers]
    known = [hold.number for hold in parts if known_end(hold) == EXACT]
    merged = [(hold, ranges(hold.numbers)) for hold in rows if hold.numbers]
    lacking = [(hold, within) for hold, within in merged if _size(within) > sum(_has(within, each) for each in known)]
    largest = [(hold, within) for hold, within in lacking if not _is_in_another(hold, within, lacking)]
    hidden = [hold for hold in parts if any(_has(within, hold.number) for _, within in largest)]
    counted = [*(hold for hold, _ in largest), *(hold for hold in parts if hold not in hidden)]
    return KeptHolds(tuple(sorted(counted, key=lambda hold: hold.number)), tuple(hidden))


def ranges(numbers: str) -> Ranges:
    """Return the numbers of a row of several holds as ranges that do not touch: 1-3,5 are (1, 3) and (5, 5)."""
    texts = (text.partition("-") for text in numbers.split(","))
    joined: list[tuple[int, int]] = []
    for low, high in sorted((int(low), int(high or low)) for low, _, high in texts):
        if joined and low <= joined[-1][1] + 1:
            joined[-1] = joined[-1][0], max(joined[-1][1], high)
        else:
            joined.append((low, high))
    return tuple(joined)


def share(total: int, start: int, end: int, begin: int, until: int) -> int:
    """Return the part of the sum of a time [start, end) that falls into [begin, until). The parts of adjacent times add
    up: each is the difference of the floors of two cumulative sums."""
    return _before(total, start, end, until) - _before(total, start, end, begin) if begin < until else 0


def _before(total: int, start: int, end: int, moment: int) -> int:
    if moment <= start:
        return 0
    return total if moment >= end else total * (moment - start) // (end - start)


def _size(within: Ranges) -> int:
    return sum(high - low + 1 for low, high in within)


def _has(within: Ranges, number: int) -> bool:
    return any(low <= number <= high for low, high in within)


def _covers(outer: Ranges, inner: Ranges) -> bool:
    return all(any(low <= first and last <= high for low, high in outer) for first, last in inner)


def _is_in_another(hold: HoldRow, within: Ranges, all_of_them: Sequence[tuple[HoldRow, Ranges]]) -> bool:
    return any(
        other is not hold and _covers(outer, within) and (not _covers(within, outer) or wins(other, hold))
        for other, outer in all_of_them
    )
