"""The gauges of the queues, from a snapshot of the store and the jobs that wait.

One rule: pure, and the figures are those of `torchq queue list`. The queues without series of their own are one series:
its amounts are sums, and its oldest wait is the longest one. So are the cohorts that have only such queues.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import get_args

from coordinator.metrics import leader_metrics as metrics
from coordinator.metrics.queue_names import OTHERS
from coordinator.metrics.registry import Sample, number
from coordinator.routing import eligibility
from crds.resources import amounts as resource_amounts
from crds.resources import quantities
from crds.resources.amounts import JOBS, Amounts
from kube.process.meter import Metric
from queues.picking import explain
from queues.picking.fair_share import lag
from queues.picking.prices import Prices
from queues.values import QueueSnapshot, Snapshot

ACTIVE, INADMISSIBLE = "active", "inadmissible"
NO_REASON: explain.Code = "BehindOthers"
"""The label of a waiting job whose status has no reason."""
OTHER_REASON = "Other"
"""The label of a reason that is not one of torchq's own: a user may write a status."""
REASONS = eligibility.CODES | frozenset(get_args(explain.Code))

Label = Callable[[str], str]


def samples(snapshot: Snapshot, now: float, cost: str, policies: Mapping[str, str], label: Label) -> Iterator[Sample]:
    """Yield the gauges of all queues, cohorts and the pool, as `coordinator.query.documents.queues` shows them.

    `cost` is the price of a pick (`queues.rules`). `label` returns the label of a queue.
    """
    groups: dict[str, list[QueueSnapshot]] = defaultdict(list)
    for view in snapshot.queues:
        groups[label(view.spec.name)].append(view)
    yield number(metrics.QUEUES, len(snapshot.queues))
    yield number(metrics.UNNAMED_QUEUES, len(groups.get(OTHERS, ())))
    prices = Prices(cost, snapshot.pool, [view.spec for view in snapshot.queues])
    total = sum(prices.used(view.usage) for view in snapshot.queues)
    busy_weight = sum(view.spec.weight for view in snapshot.queues if _is_busy(view))
    for name, views in groups.items():
        yield from _queue(name, views, snapshot, now)
        share = sum(prices.used(view.usage) for view in views)
        target = sum(view.spec.weight for view in views if _is_busy(view))
        yield number(metrics.SHARE, share / total if total else 0.0, name)
        yield number(metrics.TARGET_SHARE, target / busy_weight if busy_weight else 0.0, name)
        if name != OTHERS:
            spec = views[0].spec
            ordering = "StrictFIFO" if spec.strict else "BestEffortFIFO"
            policy = policies.get(name) or ("None" if spec.open else "Hold")
            yield number(metrics.QUEUE_INFO, 1, name, spec.cohort, ordering, policy)
    yield from _cohorts(groups)
    pool = {name: amount for name, amount in (snapshot.pool or {}).items() if name != resource_amounts.OTHERS}
    yield from _amounts(metrics.POOL_CAPACITY, pool)
    yield from _amounts(metrics.POOL_USAGE, {**dict.fromkeys(pool, 0), **snapshot.pool_usage})


def fragments(amounts: Amounts) -> Iterator[Sample]:
    """Yield the gauges of what is free in fragments (`coordinator.query.pool_nodes`)."""
    return _amounts(metrics.POOL_FRAGMENTS, amounts)


def waiting(jobs: Iterable[tuple[str, str, bool]], label: Label) -> Iterator[Sample]:
    """Yield the gauges of jobs that wait: by reason, and by queue those without a place in its order.

    Each job is its queue, the reason in its status, and whether it has a place in the order.
    """
    reasons: Counter[str] = Counter()
    inadmissible: Counter[str] = Counter()
    for queue, reason, ordered in jobs:
        reasons[(reason if reason in REASONS else OTHER_REASON) if reason else NO_REASON] += 1
        if not ordered:
            inadmissible[queue] += 1
    yield from (number(metrics.WAITING_JOBS, count, reason) for reason, count in reasons.items())
    by_label: Counter[str] = Counter()
    for queue, count in inadmissible.items():
        by_label[label(queue)] += count
    yield from (number(metrics.PENDING_JOBS, count, queue, INADMISSIBLE) for queue, count in by_label.items())


def _queue(name: str, views: list[QueueSnapshot], snapshot: Snapshot, now: float) -> Iterator[Sample]:
    yield number(metrics.PENDING_JOBS, sum(view.waiting for view in views), name, ACTIVE)
    yield number(metrics.ADMITTED_JOBS, sum(view.usage.get(JOBS, 0) for view in views), name)
    oldest = min((head.entry.submitted for view in views for head in view.heads), default=now)
    yield number(metrics.OLDEST_WAIT, max(0.0, now - oldest), name)
    yield number(metrics.WEIGHT, sum(view.spec.weight for view in views), name)
    if snapshot.clock.weights:
        yield number(metrics.LAG, sum(lag(view.account, snapshot.clock) for view in views), name)
    quota = _sum(view.spec.quota for view in views)
    yield from _amounts(metrics.QUOTA, quota, name)
    used = _sum(view.usage for view in views)
    yield from _amounts(metrics.USAGE, {**dict.fromkeys(quota, 0), **used}, name)
    yield from _amounts(metrics.BORROWING_LIMIT, _sum(view.spec.borrowing for view in views), name)


def _cohorts(groups: Mapping[str, list[QueueSnapshot]]) -> Iterator[Sample]:
    # A cohort has series of its own if one of its queues has series, so that the bound for queues holds for cohorts,
    # too.
    named = {view.spec.cohort for name, views in groups.items() if name != OTHERS for view in views}
    members: dict[str, list[QueueSnapshot]] = defaultdict(list)
    for views in groups.values():
        for view in views:
            if cohort := view.spec.cohort:
                members[cohort if cohort in named else OTHERS].append(view)
    for name, queues in members.items():
        quota = _sum(view.spec.quota for view in queues)
        yield from _amounts(metrics.COHORT_QUOTA, quota, name)
        used = _sum(_limited_usage(view) for view in queues)
        yield from _amounts(metrics.COHORT_USAGE, {**dict.fromkeys(quota, 0), **used}, name)


def _limited_usage(view: QueueSnapshot) -> Amounts:
    # As the picker counts it (`queues.picking.quotas`): a member counts with the resources that its quota names.
    return {name: amount for name, amount in view.usage.items() if name in view.spec.quota}


def _is_busy(view: QueueSnapshot) -> bool:
    return bool(view.waiting or view.usage.get(JOBS))


def _sum(amounts: Iterable[Amounts]) -> Counter[str]:
    total: Counter[str] = Counter()
    for each in amounts:
        for name, amount in each.items():
            total[name] += amount
    return total


def _amounts(metric: Metric, amounts: Mapping[str, int], *labels: str) -> Iterator[Sample]:
    for name, amount in amounts.items():
        yield number(metric, quantities.in_base_units(name, amount), *labels, name)
