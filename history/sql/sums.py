"""What was held in a span, by whom.

One rule: exact. The database adds up seconds by party and charge, which never pass its integers. Amounts are multiplied
here, where integers have no bound. Rows of several holds are cut by `history.merged_holds.share`.
"""

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Connection, Select, Table, and_, func, select, true, union_all

from history.merged_holds import share
from history.sql import row_values
from history.sql.dictionaries import read_charges, read_parties
from history.sql.statements import ended, greatest, least
from history.sql.tables import FAILED, holds, jobs, pods
from history.store import GroupSums, Span

_FEW = 4
"""The most times that the database adds up one by one; of more, each row is cut here."""
_Sums = defaultdict[int, Counter[str]]
"""Amounts x seconds by party."""
_UIDS = ((holds, holds.c.uid), (pods, pods.c.job))


class _Totals(NamedTuple):
    """What was held, and the part that was idle growth."""

    held: _Sums
    unpaid: _Sums


def sums(connection: Connection, span: Span, now: int) -> Sequence[GroupSums]:
    """Return what each group held in a span."""
    total = _totals(connection, span, now)
    failed = _totals(connection, span, now, select(jobs.c.uid).where(jobs.c.outcome == FAILED))
    counts = _count_jobs(connection, span, now)
    groups = [
        GroupSums(
            key=key,
            held=_positive(total.held[party]),
            unpaid=_positive(total.unpaid[party]),
            failed=_positive(failed.held[party]),
            jobs=counts[party],
        )
        for party, key in read_parties(connection, counts).items()
    ]
    return sorted(groups, key=lambda group: group.key)


def held_while(connection: Connection, spans: Sequence[Span], now: int) -> Mapping[str, int]:
    """Return what all held in several times."""
    if len(spans) <= _FEW:
        few = [each for span in spans for each in _totals(connection, span, now).held.values()]
        return _positive(sum(few, Counter()))
    whole, cover = Span(spans[0].start, spans[-1].end), _Cover(spans)
    seconds: Counter[int] = Counter()
    total: Counter[str] = Counter()
    for table in (holds, pods):
        end = ended(table.c.until, now)
        rows = connection.execute(
            select(table.c.charge, table.c.start, end).where(
                _overlaps(table, whole, end), table.c.charge.is_not(None), table.c.party.is_not(None)
            )
        )
        for charge, start, until in rows:
            seconds[charge] += cover.before(until) - cover.before(start)
    for charge, text in read_charges(connection, seconds).items():
        for name, amount in row_values.read_amounts(text)[0].items():
            total[name] += amount * seconds[charge]
    for row in _merged(connection, whole, now, true()):
        for name, amount in row_values.read_amounts(row.sums)[0].items():
            total[name] += sum(share(int(amount), row.start, row.end, *cut) for cut in cover.cuts(row.start, row.end))
    return _positive(total)


class _Cover:
    """Times that do not touch, and how much of them lies before a moment."""

    def __init__(self, spans: Sequence[Span]) -> None:
        self._spans = spans
        self._starts = [span.start for span in spans]
        self._sums = [0, *accumulate(span.end - span.start for span in spans)]

    def before(self, moment: int) -> int:
        """Return how many seconds of the times lie before a moment."""
        at = bisect_right(self._starts, moment)
        return self._sums[at] - max(0, self._spans[at - 1].end - moment) if at else 0

    def cuts(self, start: int, end: int) -> Iterator[Span]:
        """Yield what of each time lies between two moments."""
        for span in self._spans[max(0, bisect_right(self._starts, start) - 1) : bisect_right(self._starts, end)]:
            if max(start, span.start) < min(end, span.end):
                yield Span(max(start, span.start), min(end, span.end))


def _totals(connection: Connection, span: Span, now: int, of_jobs: Select[tuple[str]] | None = None) -> _Totals:
    """Return the sums of the parties, of some jobs (None: of all)."""
    seconds: Counter[tuple[int, int]] = Counter()
    for table, uid in _UIDS:
        end = ended(table.c.until, now)
        length = least(connection, end, span.end) - greatest(connection, table.c.start, span.start)
        rows = connection.execute(
            select(table.c.party, table.c.charge, func.sum(length))
            .where(
                _overlaps(table, span, end),
                table.c.charge.is_not(None),
                table.c.party.is_not(None),
                true() if of_jobs is None else uid.in_(of_jobs),
            )
            .group_by(table.c.party, table.c.charge)
        )
        seconds.update({(party, charge): int(total) for party, charge, total in rows})
    totals = _Totals(defaultdict(Counter), defaultdict(Counter))
    texts = read_charges(connection, {charge for _, charge in seconds})
    amounts = {charge: row_values.read_amounts(text) for charge, text in texts.items()}
    for (party, charge), each in seconds.items():
        for sums_of, part in zip(totals, amounts[charge], strict=True):
            for name, amount in part.items():
                sums_of[party][name] += amount * each
    only = true() if of_jobs is None else holds.c.uid.in_(of_jobs)
    for row in _merged(connection, span, now, only):
        for sums_of, part in zip(totals, row_values.read_amounts(row.sums), strict=True):
            for name, amount in part.items():
                sums_of[row.party][name] += share(int(amount), row.start, row.end, *span)
    return totals


def _merged(connection: Connection, span: Span, now: int, condition: ColumnElement[bool]) -> Iterable[Any]:
    """Return the rows of several holds in a span."""
    end = ended(holds.c.until, now)
    return connection.execute(
        select(holds.c.party, holds.c.sums, holds.c.start, end.label("end")).where(
            holds.c.charge.is_(None), holds.c.party.is_not(None), _overlaps(holds, span, end), condition
        )
    )


def _count_jobs(connection: Connection, span: Span, now: int) -> dict[int, int]:
    """Return the number of jobs of each party that held room in a span."""
    each = union_all(
        *(
            select(table.c.party, uid.label("uid")).where(
                _overlaps(table, span, ended(table.c.until, now)), table.c.party.is_not(None)
            )
            for table, uid in _UIDS
        )
    ).subquery()
    rows = connection.execute(select(each.c.party, func.count(each.c.uid.distinct())).group_by(each.c.party))
    return {party: count for party, count in rows}


def _overlaps(table: Table, span: Span, end: ColumnElement[int]) -> ColumnElement[bool]:
    """Return the condition that a row has time in a span. The first two parts are what an index finds."""
    starts_later = table.c.start < end
    return and_(table.c.until > span.start, table.c.start < span.end, end > span.start, starts_later)


def _positive(sums_of: Counter[str]) -> dict[str, int]:
    return {name: total for name, total in sums_of.items() if total}
