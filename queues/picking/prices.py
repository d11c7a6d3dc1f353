"""What a pick costs its queue: one, the amount of a resource, or the job's dominant share.

One rule: pure. A price follows from a demand, the size of the pool and the quotas. If the pool or the quotas change,
only later prices change: a queue is refunded what it has paid.

The dominant share is the largest part that a job takes of any resource (Dominant Resource Fairness, Ghodsi et al., NSDI
2011). The share counts in whole millionths, rounded up. The resources that count are cpu, memory, pods, the GPUs of any
vendor (`*/gpu`) and the resources that a quota names, as parts of the pool. Without a pool, they count as parts of the
summed quotas, and only the resources that every queue limits count. If no resource counts, every job costs the whole.
"""

from collections.abc import Iterable, Mapping

from crds.resources.amounts import JOBS, NOTHING, OTHERS, PODS, Amounts
from queues.rules import DOMINANT
from queues.values import ACCOUNT_SCHEME, QueueSpec

WHOLE = 1_000_000
"""The price of all that there is of a resource."""
_ALWAYS = frozenset(("cpu", "memory", PODS))
_GPUS = "/gpu"
_MOST_KNOWN = 4_096
"""The most demands whose price is remembered."""


class Prices:
    """The prices of one pool and of one set of queues."""

    __slots__ = ("_known", "_least", "_parts", "scheme", "whole")

    def __init__(self, cost: str, pool: Amounts | None, queues: Iterable[QueueSpec]) -> None:
        """`cost` is what a pick costs (`queues.rules`); a pool of None is unlimited."""
        self.whole: Amounts = NOTHING
        """What there is of the resources that count; none if that is not known, or if all jobs cost the same."""
        self.scheme = ACCOUNT_SCHEME if cost == JOBS else f"{ACCOUNT_SCHEME}:{cost}"
        """The name of the unit of prices. Accounts in another unit do not count."""
        self._least = 1
        """The least price of any job."""
        self._parts: tuple[tuple[str, int, int], ...] = ()
        """The resources that count: name, factor, and divisor."""
        self._known: dict[int, tuple[Amounts, int]] = {}
        """Prices by the identity of the demand. Equal demands mostly are one object."""
        if cost == DOMINANT:
            self.whole = _whole(pool, queues)
            self._parts = tuple((name, WHOLE, amount) for name, amount in self.whole.items())
            self._least = -(-WHOLE // self.whole.get(PODS, WHOLE)) if self._parts else WHOLE
        elif cost != JOBS:
            self.whole = {cost: pool[cost]} if pool is not None and cost in pool else NOTHING
            self._parts = ((cost, 1, 1),)

    def of(self, demand: Amounts) -> int:
        """Return what a demand costs. The price is never less than the least price, which a demand of nothing costs."""
        if not self._parts:
            return self._least
        known = self._known.get(id(demand))
        if known is not None and known[0] is demand:
            return known[1]
        price = max(self._least, self._largest_part(demand))
        if len(self._known) >= _MOST_KNOWN:
            self._known.clear()
        self._known[id(demand)] = demand, price
        return price

    def used(self, usage: Amounts) -> int:
        """Return what a queue uses, in the unit of prices; in jobs, if all jobs cost the same."""
        return self._largest_part(usage) if self._parts else usage.get(JOBS, 0)

    def count(self, demand: Amounts) -> bool:
        """Return whether more of a demand may cost more."""
        return any(demand.get(name, 0) > 0 for name, _, _ in self._parts)

    def _largest_part(self, demand: Amounts) -> int:
        return max(-(-demand.get(name, 0) * factor // divisor) for name, factor, divisor in self._parts)


def _whole(pool: Amounts | None, queues: Iterable[QueueSpec]) -> Mapping[str, int]:
    """Return what there is of each resource that counts for the dominant share."""
    quotas = [queue.quota for queue in queues]
    if pool is not None:
        named = frozenset().union(*quotas)
        found = {name: amount for name, amount in pool.items() if _always_counts(name) or name in named}
    else:
        limited = frozenset.intersection(*map(frozenset, quotas)) if quotas else frozenset()
        found = {name: sum(quota[name] for quota in quotas) for name in sorted(limited)}
    return {name: amount for name, amount in found.items() if amount > 0 and name != OTHERS}


def _always_counts(name: str) -> bool:
    return name in _ALWAYS or name.endswith(_GPUS)
