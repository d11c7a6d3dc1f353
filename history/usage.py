"""Usage: who has used how much of the cluster in a span, and what of it each queue was entitled to.

One rule: pure, and exact. Sums are integers of amount x seconds, and parts are fractions until a person sees them.

    held     all that jobs held, with idle growth, and with pods that outlived their jobs
    unpaid   the part of it that was idle growth, which costs nothing
    paid     held - unpaid: prices and shares count this
    offered  what the pool had

A reader of some namespaces gets the groups of these; all that others held is one group without a name.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from crds.holds import GPU
from crds.resources.amounts import JOBS, PODS, Amounts, increase, subtract
from history import prices as price_list
from history.prices import Prices
from history.rows import PoolRow
from history.store import Grouping, GroupKey, GroupSums, Span

CPU, GPUS = "cpu", "*/gpu"
"""What the cluster is counted in: CPUs, or GPUs of all kinds."""
DOMINANT = "dominant"
MOST_GROUPS = 1_000
"""The most groups that an answer names."""
_SHARED = (CPU, "memory", PODS)
"""The resources, beside GPUs, whose largest part of the pool is the worth of usage."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """What one queue, namespace or user has used."""

    name: str
    """The name; empty: a user who is not known."""
    jobs: int
    """The number of jobs that held room."""
    held: Amounts
    unpaid: Amounts
    failed: Amounts
    """What jobs held that have failed."""
    share: Fraction | None
    """The part of what was paid; None if nothing was."""
    target: Fraction | None
    """The part to which the weights entitled the queue; None for other groups, and if it wanted nothing."""
    price: Fraction | None
    """What it costs; None without prices."""
    waits: tuple[int, int] | None
    """For how long half of the jobs, and 95 of 100, waited at most before they were admitted first, in seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolSeconds:
    """What became of what the pool offered of its GPUs, or of its CPUs if it has none, as amount x seconds."""

    span: Span
    """The part of the span in which the pool was known."""
    resource: str
    """What is counted: `*/gpu` or `cpu`."""
    offered: int
    paid: int
    unpaid: int
    idle_while_waiting: int
    """What was idle while at least one job waited."""
    idle: int
    """What else was idle."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Records:
    """What the history says of a span."""

    sums: Sequence[GroupSums]
    waits: Mapping[GroupKey, Sequence[int]]
    entitlements: Mapping[str, Fraction]
    """The part of the span that each queue was entitled to."""
    pool: Amounts
    """What the pool offered, as amount x seconds, as far as that is known."""


@dataclass(frozen=True, slots=True)
class _Rates:
    """What usage costs, and what it counts for shares."""

    prices: Prices
    worth: Callable[[Amounts], Fraction]
    whole: Fraction
    """The worth of all usage."""


def groups(
    records: Records, by: Grouping, cost: str, prices: Prices, namespaces: frozenset[str] | None
) -> tuple[list[Group], Group | None]:
    """Return what each group has used, by name, and what others have used: those of whom a reader of these namespaces
    knows no names, and the smallest beyond MOST_GROUPS; None if there are no others.

    `namespaces` is None for a reader of all.
    """
    shown = _largest(records, by, namespaces)

    def name_of(key: GroupKey) -> str | None:
        name = str(getattr(key, by))
        return name if name in shown and _is_known(key, namespaces) else None

    sums: dict[str | None, list[GroupSums]] = {}
    waits: dict[str | None, list[int]] = {}
    for each in records.sums:
        sums.setdefault(name_of(each.key), []).append(each)
    for key, seconds in records.waits.items():
        waits.setdefault(name_of(key), []).extend(seconds)
    targets: dict[str | None, Fraction] = {}
    for queue, part in records.entitlements.items() if by == "queue" else ():
        name = queue if queue in shown else None
        targets[name] = targets.get(name, Fraction(0)) + part
    worth = _worth_of(cost, records)
    rates = _Rates(prices, worth, sum((worth(_paid(each)) for each in sums.values()), Fraction(0)))
    found = {
        name: _group(name or "", sums.get(name, []), waits.get(name, []), targets.get(name), rates)
        for name in {*sums, *waits, *targets}
    }
    others = found.pop(None, None)
    return [found[name] for name in sorted(name for name in found if name is not None)], others


def _is_known(key: GroupKey, namespaces: frozenset[str] | None) -> bool:
    return namespaces is None or key.namespace in namespaces


def _largest(records: Records, by: Grouping, namespaces: frozenset[str] | None) -> frozenset[str]:
    """Return the names of the groups that are shown."""
    sizes: dict[str, tuple[int, int]] = {}
    for each in records.sums:
        if _is_known(each.key, namespaces):
            name = str(getattr(each.key, by))
            before = sizes.get(name, (0, 0))
            sizes[name] = before[0] + gpus(each.held), before[1] + each.held.get(CPU, 0)
    waiting = {str(getattr(key, by)) for key in records.waits if _is_known(key, namespaces)}
    entitled = records.entitlements if by == "queue" and namespaces is None else ()
    names = sorted({*sizes, *waiting, *entitled}, key=lambda name: (*(-size for size in sizes.get(name, (0, 0))), name))
    return frozenset(names[:MOST_GROUPS])


def _group(
    name: str,
    sums: Iterable[GroupSums],
    waits: Sequence[int],
    target: Fraction | None,
    rates: _Rates,
) -> Group:
    held: dict[str, int] = {}
    unpaid: dict[str, int] = {}
    failed: dict[str, int] = {}
    jobs = 0
    for each in sums:
        increase(held, each.held)
        increase(unpaid, each.unpaid)
        increase(failed, each.failed)
        jobs += each.jobs
    paid = subtract(held, unpaid)
    return Group(
        name=name,
        jobs=jobs,
        held=held,
        unpaid=unpaid,
        failed=failed,
        share=rates.worth(paid) / rates.whole if rates.whole else None,
        target=target,
        price=price_list.cost(paid, rates.prices) if rates.prices else None,
        waits=(_percentile(waits, 50), _percentile(waits, 95)) if waits else None,
    )


def _paid(sums: Iterable[GroupSums]) -> dict[str, int]:
    total: dict[str, int] = {}
    for each in sums:
        increase(total, each.held)
        increase(total, each.unpaid, -1)
    return total


def _percentile(values: Iterable[int], percents: int) -> int:
    """Return the smallest value that so many percents of the values do not exceed."""
    ranked = sorted(values)
    return ranked[max(0, -(-percents * len(ranked) // 100) - 1)]


def _worth_of(cost: str, records: Records) -> Callable[[Amounts], Fraction]:
    """Return a function that returns what usage counts for its share, by what a pick costs (`queues.rules`): the
    largest part of what the pool offered, or one resource: GPUs, else CPUs, if every job costs the same."""
    parts = {
        name: amount for name, amount in records.pool.items() if amount > 0 and (name in _SHARED or name.endswith(GPU))
    }
    if cost == DOMINANT and parts:
        return lambda paid: max(Fraction(max(0, paid.get(name, 0)), amount) for name, amount in parts.items())
    if cost in (DOMINANT, JOBS):
        counted = GPUS if gpus(_paid(records.sums)) else CPU
        return lambda paid: Fraction(max(0, count(paid, counted)))
    return lambda paid: Fraction(max(0, paid.get(cost, 0)))


def gpus(amounts: Amounts) -> int:
    """Return the sum of all resources that are GPUs."""
    return sum(amount for name, amount in amounts.items() if name.endswith(GPU))


def count(amounts: Amounts, resource: str) -> int:
    """Return the amount of a resource; of GPUS the sum over all kinds of them."""
    return gpus(amounts) if resource == GPUS else amounts.get(resource, 0)


def offered(pools: Sequence[PoolRow], span: Span) -> dict[str, int]:
    """Return what the pool had in a span, as amount x seconds. `pools` are by start."""
    total: dict[str, int] = {}
    starts = [*(row.start for row in pools), span.end]
    for row, after in zip(pools, starts[1:], strict=True):
        seconds = min(after, span.end) - max(row.start, span.start)
        if seconds > 0:
            increase(total, row.amounts, seconds)
    return total


def _during(pools: Sequence[PoolRow], span: Span) -> Sequence[PoolRow]:
    """Return the rows that say what the pool had in a span."""
    first = bisect_right(pools, span.start, key=_start) - 1
    return pools[max(0, first) : bisect_left(pools, span.end, key=_start)]


def _start(row: PoolRow) -> int:
    return row.start


def known(pools: Sequence[PoolRow], span: Span) -> Span | None:
    """Return the part of a span from when on it is known how many GPUs or CPUs the pool has; None if that is not known,
    or has no limits."""
    is_known = (max(row.start, span.start) for row in pools if CPU in row.amounts or gpus(row.amounts))
    start = next(is_known, span.end)
    return Span(start, span.end) if start < span.end else None


def cluster(
    span: Span, pools: Sequence[PoolRow], sums: Iterable[GroupSums], waiting: Sequence[Span], held_then: Amounts
) -> PoolSeconds:
    """Return what became of the pool in a span in which it is known.

    `waiting` are the times in which at least one job waited, and `held_then` is what all jobs held in them.
    """
    every = [*sums]
    whole = offered(pools, span)
    resource = GPUS if gpus(whole) else CPU
    paid = count(_paid(every), resource)
    unpaid = sum(count(each.unpaid, resource) for each in every)
    idle = max(0, count(whole, resource) - paid - unpaid)
    offered_then = sum(count(offered(_during(pools, each), each), resource) for each in waiting)
    idle_then = min(idle, max(0, offered_then - count(held_then, resource)))
    return PoolSeconds(
        span=span,
        resource=resource,
        offered=count(whole, resource),
        paid=paid,
        unpaid=unpaid,
        idle_while_waiting=idle_then,
        idle=idle - idle_then,
    )


def percents(parts: Sequence[int | Fraction]) -> list[int]:
    """Return the parts of their sum in whole percents that add up to 100: those with the largest remainders are rounded
    up. Zeros if the sum is 0."""
    whole = Fraction(sum(parts))
    if not whole:
        return [0] * len(parts)
    exact = [Fraction(part) * 100 / whole for part in parts]
    found = [each.numerator // each.denominator for each in exact]
    by_remainder = sorted(range(len(parts)), key=lambda index: found[index] - exact[index])
    for index in by_remainder[: 100 - sum(found)]:
        found[index] += 1
    return found
