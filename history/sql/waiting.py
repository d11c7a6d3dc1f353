"""Who waited in a span, and for how long.

One rule: a wait is over at `waits.over` (`history.sql.written_waits`), or now.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import zip_longest

from sqlalchemy import Connection, Select, and_, exists, func, literal, or_, select, tuple_, union_all

from history.sql.dictionaries import read_parties
from history.sql.statements import ended, least
from history.sql.tables import HAS_TIME, holds, waits
from history.store import Demand, GroupKey, Span


def first_waits(connection: Connection, span: Span) -> Mapping[GroupKey, Sequence[int]]:
    """Return the waits of the jobs whose first hold began in a span."""
    earlier, first = holds.alias(), holds.c
    is_first = or_(
        first.number == 1,
        ~exists().where(
            earlier.c.uid == first.uid,
            or_(
                earlier.c.number == 1,
                tuple_(earlier.c.start, earlier.c.number) < tuple_(first.start, first.number),
            ),
        ),
    )
    waited = (
        select(func.sum(least(connection, waits.c.over, first.start) - waits.c.start))
        .where(waits.c.uid == first.uid, waits.c.start < first.start, waits.c.over > waits.c.start)
        .scalar_subquery()
    )
    condition = and_(first.start >= span.start, first.start < span.end, first.party.is_not(None), is_first)
    found: defaultdict[int, list[int]] = defaultdict(list)
    for party, seconds in connection.execute(select(first.party, func.coalesce(waited, 0)).where(condition)):
        found[party].append(int(seconds))
    return {key: found[party] for party, key in read_parties(connection, found).items()}


def demands(connection: Connection, span: Span, now: int) -> Sequence[Demand]:
    """Return when the queues had jobs that held room or waited."""
    held = select(holds.c.queue, holds.c.start, ended(holds.c.until, now).label("end")).where(
        holds.c.until > span.start, holds.c.start < span.end
    )
    return _islands(connection, span, held, _waits(span, now))


def waiting(connection: Connection, span: Span, now: int) -> Sequence[Span]:
    """Return when at least one job waited in a span."""
    each = _waits(span, now).subquery()
    together = select(literal("").label("queue"), each.c.start, each.c.end)
    return [Span(start, end) for _, start, end in _islands(connection, span, together)]


def _waits(span: Span, now: int) -> Select[tuple[str, int, int]]:
    return select(waits.c.queue, waits.c.start, ended(waits.c.over, now).label("end")).where(
        waits.c.over > span.start, waits.c.start < span.end, HAS_TIME
    )


def _islands(connection: Connection, span: Span, *parts: Select[tuple[str, int, int]]) -> list[Demand]:
    """Return the longest times that the rows of each queue cover.

    A row begins such a time if it starts after the ends of all rows before it, and the last of these ends is the end of
    the time before. So the database returns the gaps alone.
    """
    ends: dict[str, int] = {}
    for part in parts:  # one after the other: an index of each has what is needed
        columns = part.subquery().c
        last = select(columns.queue, func.max(columns.end)).where(columns.start < columns.end).group_by(columns.queue)
        for queue, end in connection.execute(last):
            ends[queue] = max(end, ends.get(queue, end))
    columns = union_all(*parts).subquery().c
    before = func.max(columns.end).over(partition_by=columns.queue, order_by=columns.start, rows=(None, -1))
    rows = select(columns.queue, columns.start, before.label("before")).where(columns.start < columns.end).subquery().c
    begins = connection.execute(
        select(rows.queue, rows.start, rows.before)
        .where(or_(rows.before.is_(None), rows.start > rows.before))
        .order_by(rows.queue, rows.start)
    ).all()
    found = []
    for (queue, start, _), after in zip_longest(begins, begins[1:]):
        end = ends[queue] if after is None or after.before is None else after.before
        found.append(Demand(queue, max(start, span.start), min(end, span.end)))
    return [demand for demand in found if demand.start < demand.end]
