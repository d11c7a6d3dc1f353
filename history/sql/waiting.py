"""Who waited in a span, and for how long.

One rule: a wait is over at `waits.over` (`history.sql.written_waits`), or now.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest

from sqlalchemy import Connection, Select, Text, and_, cast, exists, func, literal, or_, select, tuple_, union_all

from history.sql.dictionaries import read_parties
from history.sql.statements import ended, least
from history.sql.tables import HAS_TIME, holds, waits
from history.store import Demand, GroupKey, Span


def first_waits(connection: Connection, span: Span) -> Mapping[GroupKey, Sequence[int]]:
    """Return the waits of the jobs whose first hold began in a span.

    The seconds of a party are one text: a year has so many jobs that their rows would take longer than the question.
    """
    first = union_all(*_first_holds(span)).subquery().c
    seconds = func.coalesce(func.sum(least(connection, waits.c.over, first.start) - waits.c.start), 0)
    has_waited = and_(waits.c.uid == first.uid, waits.c.start < first.start, HAS_TIME)
    jobs = first.uid.table.outerjoin(waits, has_waited)
    each = select(first.party, seconds.label("seconds")).select_from(jobs).group_by(first.uid, first.party).subquery().c
    texts = select(each.party, func.aggregate_strings(cast(each.seconds, Text), ",")).group_by(each.party)
    found = {party: [*map(int, text.split(","))] for party, text in connection.execute(texts)}
    return {key: found[party] for party, key in read_parties(connection, found).items()}


def _first_holds(span: Span) -> Iterator[Select[tuple[str, int, int]]]:
    """Yield the selects of the first holds of jobs that began in a span: the holds of the number 1, and, of jobs
    without such a hold, the earliest ones. Apart, the conditions are joins."""
    first, other, earlier = holds.c, holds.alias().c, holds.alias().c
    columns = select(first.uid, first.party, first.start).where(
        first.until >= span.start, first.start >= span.start, first.start < span.end, first.party.is_not(None)
    )
    yield columns.where(first.number == 1)
    has_first = exists().where(other.uid == first.uid, other.number == 1)
    is_later = exists().where(
        earlier.uid == first.uid, tuple_(earlier.start, earlier.number) < tuple_(first.start, first.number)
    )
    yield columns.where(first.number != 1, ~has_first, ~is_later)


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
    columns = [part.subquery().c for part in parts]
    lasting = [select(each.queue, each.start, each.end).where(each.start < each.end) for each in columns]
    ends: dict[str, int] = {}
    for part in lasting:  # one after the other: an index of each has what is needed
        each = part.subquery().c
        for queue, end in connection.execute(select(each.queue, func.max(each.end)).group_by(each.queue)):
            ends[queue] = max(end, ends.get(queue, end))
    # Each part in its order, which an index has: the parts are merged, and not sorted.
    sorted_parts = (part.order_by(part.selected_columns.queue, part.selected_columns.start) for part in lasting)
    every = union_all(*(part.subquery().select() for part in sorted_parts)).subquery().c
    before = func.max(every.end).over(partition_by=every.queue, order_by=every.start, rows=(None, -1))
    rows = select(every.queue, every.start, before.label("before")).subquery().c
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
