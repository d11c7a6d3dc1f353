"""The limits of a queue: its quota, what the queue may borrow, and what its cohort has in total; and which resources
are limited.

One rule: pure, and computed from the usage of every member. `lua/store/commit.lua` computes the same limits with
running sums.

A store counts sums of usage only of some resources. Every commit and every snapshot reads the sums, so a user must not
be able to add a name to the sums: sums over names that jobs make up would slow the picks of all queues. A resource that
limits nothing needs no sum. The resources that a limit names are always counted, and the standard resources are counted
because people look at them. A charge in a reservation keeps all its names: when a name begins to count, the store
computes the sums again from the reservations.
"""

from collections.abc import Iterable

from crds.resources import amounts
from crds.resources.amounts import JOBS, NOTHING, OTHERS, PODS, Amounts
from queues.values import QueueSpec

STANDARD_RESOURCES = frozenset((JOBS, PODS, "cpu", "memory", "ephemeral-storage", "nvidia.com/gpu", "amd.com/gpu"))
"""Resources whose usage is shown though nothing limits them."""


def usage_resources(specs: Iterable[QueueSpec], pool: Amounts | None, also: Iterable[str] = ()) -> frozenset[str]:
    """Return the counted resources: the resources of all quotas and of the pool, the standard resources, and
    `also`."""
    return STANDARD_RESOURCES.union(pool or (), also, *(spec.quota for spec in specs)) - {OTHERS}


def queue_limit(spec: QueueSpec) -> Amounts:
    """Return the most that a queue may use, whatever its cohort has: its quota, in a cohort plus the amount that it may
    borrow.

    In a cohort, a resource without a limit on borrowing is left out.
    """
    if not spec.cohort:
        return spec.quota
    return {name: quota + spec.borrowing[name] for name, quota in spec.quota.items() if name in spec.borrowing}


def cohort_totals(specs: Iterable[QueueSpec]) -> dict[str, dict[str, int]]:
    """Return, by cohort, the amounts that its members may use together: the sum of their quotas. Closed members lend,
    too.
    """
    sums: dict[str, dict[str, int]] = {}
    for spec in specs:
        if spec.cohort:
            sums[spec.cohort] = amounts.add(sums.get(spec.cohort, NOTHING), spec.quota)
    return sums
