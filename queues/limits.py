"""What a queue may hold: its quota, what it may borrow, and what its cohort has together.

One rule: pure, and counted anew from the usage of every member. `lua/store/commit.lua` does the same with sums that it
keeps.
"""

from collections.abc import Iterable, Mapping
from typing import Literal

from crds.resources import amounts
from crds.resources.amounts import NOTHING, Amounts
from queues.values import QueueSpec


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
