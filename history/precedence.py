"""Which of two rows with the same key stays: the natural keys of rows, and what a row wins by.

One rule: the order is total for rows that recorders make, so the same rows give the same history in any order, doubled
or not. A newer version wins. Of one version, an exact end wins over an approximate one, and any end over none.
"""

import json

from history.rows import GapRow, HoldRow, JobRow, PodRow, PoolRow, QueueRow, Row, WaitRow

OPEN, APPROXIMATE, EXACT = 0, 1, 2
"""What is known of an end."""

Key = tuple[str | int, ...]


def key(row: Row) -> Key:
    """Return the key of a row: the name of its kind, then what identifies the row within the kind. A row of several
    holds together has another key than each of the holds."""
    match row:
        case JobRow(uid=uid) | PodRow(uid=uid):
            return type(row).__name__, uid
        case HoldRow():
            return "HoldRow", row.uid, row.number, row.numbers
        case WaitRow():
            return "WaitRow", row.uid, row.start
        case QueueRow():
            return "QueueRow", row.name, row.start
        case PoolRow(start=start) | GapRow(start=start):
            return type(row).__name__, start


def wins(row: Row, other: Row) -> bool:
    """Return whether a row takes the place of another one with the same key."""
    return _rank(row) > _rank(other)


def known_end(row: JobRow | HoldRow | WaitRow | PodRow) -> int:
    """Return what is known of the end of a row: OPEN, APPROXIMATE or EXACT."""
    if (row.ended if isinstance(row, JobRow) else row.end) is None:
        return OPEN
    return APPROXIMATE if not isinstance(row, WaitRow) and row.is_approximate else EXACT


def _rank(row: Row) -> tuple[int | str, ...]:
    match row:
        case JobRow():
            return row.version, known_end(row), row.seen, row.ended or 0
        case HoldRow() | WaitRow() | PodRow():
            return row.version, known_end(row), row.end or 0
        case QueueRow():
            return (row.version,)
        case PoolRow():
            return (json.dumps(row.amounts, sort_keys=True),)
        case GapRow():
            return (-row.end,)
