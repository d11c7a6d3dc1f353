"""Who waited in a span, and for how long.

One rule: a wait is over at `waits.over` (`history.sql.written_waits`), or now.
"""

from collections.abc import Sequence
from itertools import zip_longest

from sqlalchemy import Connection, Select, and_, exists, func, literal, or_, select, tuple_

from history.sql.dictionaries import read_parties
from history.sql.statements import ended, least
from history.sql.tables import holds, parties, waits
from history.store import Demand, FirstWait, Span


def first_waits(connection: Connection, span: Span, namespaces: frozenset[str] | None) -> Sequence[FirstWait]:
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
    if namespaces is not None:
        condition &= first.party.in_(select(parties.c.id).where(parties.c.namespace.in_(sorted(namespaces))))
    rows = connection.execute(select(first.party, func.coalesce(waited, 0)).where(condition)).all()
    keys = read_parties(connection, {party for party, _ in rows})
    return [FirstWait(key=keys[party], seconds=int(seconds)) for party, seconds in rows]


def demands(connection: Connection, span: Span, now: int) -> Sequence[Demand]:
    """Return when the queues had jobs that held room or waited."""
    held = select(holds.c.queue, holds.c.start, ended(holds.c.until, now).label("end")).where(
        holds.c.until > span.start, holds.c.start < span.end
    )
    # One table after the other: its index has the order that is needed.
    joined: list[Demand] = []
    for each in sorted([*_islands(connection, held, span), *_islands(connection, _waits(span, now), span)]):
        if joined and joined[-1].queue == each.queue and each.start <= joined[-1].end:
            joined[-1] = each._replace(start=joined[-1].start, end=max(joined[-1].end, each.end))
        else:
            joined.append(each)
    return joined


def waiting(connection: Connection, span: Span, now: int) -> Sequence[Span]:
    """Return when at least one job waited in a span."""
    each = _waits(span, now).subquery()
    together = select(literal("").label("queue"), each.c.start, each.c.end)
    return [Span(start, end) for _, start, end in _islands(connection, together, span)]


def _waits(span: Span, now: int) -> Select[tuple[str, int, int]]:
    return select(waits.c.queue, waits.c.start, ended(waits.c.over, now).label("end")).where(
        waits.c.over > span.start, waits.c.start < span.end
    )


def _islands(connection: Connection, each: Select[tuple[str, int, int]], span: Span) -> list[Demand]:
    """Return the longest times that the rows of each queue cover.

    A row begins such a time if it starts after the ends of all rows before it, and the last of these ends is the end of
    the time before. So the database returns the gaps alone.
    """
    columns = each.subquery().c
    some = columns.start < columns.end
    before = func.max(columns.end).over(partition_by=columns.queue, order_by=columns.start, rows=(None, -1))
    rows = select(columns.queue, columns.start, before.label("before")).where(some).subquery()
    begins = connection.execute(
        select(rows.c.queue, rows.c.start, rows.c.before)
        .where(or_(rows.c.before.is_(None), rows.c.start > rows.c.before))
        .order_by(rows.c.queue, rows.c.start)
    ).all()
    last = select(columns.queue, func.max(columns.end)).where(some).group_by(columns.queue)
    ends: dict[str, int] = {queue: end for queue, end in connection.execute(last)}
    found = []
    for begin, after in zip_longest(begins, begins[1:]):
        end = ends[begin.queue] if after is None or after.before is None else after.before
        found.append(Demand(begin.queue, max(begin.start, span.start), min(end, span.end)))
    return [demand for demand in found if demand.start < demand.end]
