"""What a queue may hold: its quota, what it may borrow, and what its cohort has together; and which resources count.

One rule: pure, and counted anew from the usage of every member. `lua/store/commit.lua` does the same with sums that it
keeps.

A store counts sums of usage only of some resources. Every commit and every snapshot reads the sums, so a user must not
be able to add a name to them: sums over names that jobs make up would slow the picks of all queues. A resource that
limits nothing needs no sum. The resources that a limit names always count, and the standard ones count because people
look at them. A charge in a reservation keeps all its names: when a name begins to count, the store computes the sums
again from the reservations.
"""

from collections.abc import Iterable, Mapping
from typing import Literal

from crds.resources import amounts
from crds.resources.amounts import JOBS, NOTHING, OTHERS, PODS, Amounts
from queues.values import QueueSpec

STANDARD_RESOURCES = frozenset((JOBS, PODS, "cpu", "memory", "ephemeral-storage", "nvidia.com/gpu", "amd.com/gpu"))
"""Resources whose usage is shown though nothing limits them."""


def counted_resources(specs: Iterable[QueueSpec], pool: Amounts | None, also: Iterable[str] = ()) -> frozenset[str]:
    """Return the resources that count: those of all quotas and of the pool, the standard ones, and `also`."""
    return STANDARD_RESOURCES.union(pool or (), also, *(spec.quota for spec in specs)) - {OTHERS}


def own(spec: QueueSpec) -> Amounts:
    """The most a queue may hold by itself: its quota; in a cohort with what it may borrow, where that is limited."""
    if not spec.cohort:
        return spec.quota
    return {name: most + spec.borrowing[name] for name, most in spec.quota.items() if name in spec.borrowing}


def totals(specs: Iterable[QueueSpec]) -> dict[str, dict[str, int]]:
    """By cohort, what its members may hold together: the sum of their quotas; closed members lend, too."""
    found: dict[str, dict[str, int]] = {}
    for spec in specs:
        if spec.cohort:
            found[spec.cohort] = amounts.add(found.get(spec.cohort, NOTHING), spec.quota)
    return found


def exceeded(
    demand: Amounts, spec: QueueSpec, specs: Iterable[QueueSpec], usage: Mapping[str, Amounts]
) -> Literal["", "quota", "cohort"]:
    """Which limit has no room for a demand in a queue, given all queues and what they use.

    Only names that the queue's quota limits count. Outside a cohort the quota is the limit. In one, the queue may hold
    quota and borrowing together (a name that borrowing leaves out has no limit there), and the members that limit a
    name may together hold the sum of their quotas of it.
    """
    used = usage.get(spec.name, NOTHING)
    if not amounts.fits(demand, used, own(spec)):
        return "quota"
    if not spec.cohort:
        return ""
    members = [member for member in specs if member.cohort == spec.cohort]
    quota, shared = totals(members)[spec.cohort], NOTHING
    for member in members:
        held = usage.get(member.name, NOTHING)
        shared = amounts.add(shared, {name: held.get(name, 0) for name in member.quota})
    return "" if amounts.fits(demand, shared, {name: quota[name] for name in spec.quota}) else "cohort"
