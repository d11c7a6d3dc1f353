"""How waits are written into their table, and when they were over.

A sight of a job tells since when it waits, not both ends of a wait: a wait is over at its own end, when the next row
of the job begins, or when the job ends, whichever comes first.
"""

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any

from sqlalchemy import Connection, bindparam, select, update

from history.rows import WaitRow
from history.sql import row_values, statements
from history.sql.tables import OPEN, jobs, waits


def write(connection: Connection, rows: Sequence[WaitRow], uids: Iterable[str]) -> int:
    """Insert or update waits, and find their ends anew, also of the other jobs that have changed. Return how many rows
    differ now."""
    values = [row_values.of_wait(row) for row in rows]
    changed = statements.upsert(connection, waits, values, "version", "known", "until")
    for some in statements.chunks(dict.fromkeys([*(row.uid for row in rows), *uids])):
        stored = connection.execute(
            select(waits.c.uid, waits.c.start, waits.c.until, waits.c.over, jobs.c.until.label("job_end"))
            .outerjoin_from(waits, jobs, jobs.c.uid == waits.c.uid)
            .where(statements.among(connection, waits.c.uid, some))
            .order_by(waits.c.uid, waits.c.start)
        )
        moved = [end for _, each in groupby(stored, key=lambda row: row.uid) for end in _moved_ends(list(each))]
        if moved:
            connection.execute(
                update(waits)
                .where(waits.c.uid == bindparam("of_uid"), waits.c.start == bindparam("of_start"))
                .values(over=bindparam("end")),
                moved,
            )
    return changed


def _moved_ends(rows: Sequence[Any]) -> list[dict[str, Any]]:
    """Return the ends of the waits of one job that are not stored yet."""
    starts = [*(row.start for row in rows[1:]), OPEN]
    ends = [
        min(row.until, after, OPEN if row.job_end is None else row.job_end)
        for row, after in zip(rows, starts, strict=True)
    ]
    return [
        {"of_uid": row.uid, "of_start": row.start, "end": end}
        for row, end in zip(rows, ends, strict=True)
        if row.over != end
    ]
