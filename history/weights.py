"""What the weights of queues entitle them to over a span.

One rule: exact to 2^-64 of a second.

At each second the weights of the queues that want something divide it. With the weights a=3 and b=1, where b wants
something in the second half of a day alone, a is entitled to 1/2 + 1/2 x 3/4 of the day, and b to 1/8. Seconds in which
no queue wants anything do not count.

The sum over all changes takes time that grows with the changes alone: the clock of the sum moves by seconds / sum of
weights, and a queue earns its weight x the movement while it wants something (as in weighted round robin).
"""

from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from itertools import groupby
from operator import attrgetter, itemgetter

from history.rows import QueueRow
from history.store import Demand, Span

DEFAULT = 1
"""The weight of a queue that no TenantQueue describes."""
_SECOND = 1 << 64


def entitlements(demands: Iterable[Demand], queues: Sequence[QueueRow], span: Span) -> dict[str, Fraction]:
    """Return the part of the span that each queue was entitled to, of the time in which any wanted something.

    `queues` has the weights by queue and start.
    """
    weights = {name: tuple(rows) for name, rows in groupby(queues, key=attrgetter("name"))}
    changes = sorted(_changes(demands, weights, span), key=itemgetter(0))
    clock, busy, total, last = 0, 0, 0, span.start
    active: dict[str, tuple[int, int]] = {}
    earned: dict[str, int] = {}
    for moment, queue, weight in changes:
        if total:
            clock += (moment - last) * _SECOND // total
            busy += (moment - last) * _SECOND
        last = moment
        before, since = active.pop(queue, (0, clock))
        earned[queue] = earned.get(queue, 0) + before * (clock - since)
        total += weight - before
        if weight:
            active[queue] = weight, clock
    return {queue: Fraction(amount, busy) for queue, amount in earned.items()} if busy else {}


def _changes(
    demands: Iterable[Demand], weights: Mapping[str, Sequence[QueueRow]], span: Span
) -> Iterable[tuple[int, str, int]]:
    """Yield the weight of each queue from a time on, while it wants something; 0 when it wants nothing any more."""
    for queue, first, last in demands:
        start, end = max(first, span.start), min(last, span.end)
        if start >= end:
            continue
        rows = weights.get(queue, ())
        yield start, queue, _at(rows, start)
        yield from ((row.start, queue, row.weight) for row in rows if start < row.start < end)
        yield end, queue, 0


def _at(rows: Sequence[QueueRow], moment: int) -> int:
    """Return the weight at a time. Before the first row, the weight is that of the first row."""
    earlier = [row.weight for row in rows if row.start <= moment]
    if earlier:
        return earlier[-1]
    return rows[0].weight if rows else DEFAULT
