"""What quotas and cohorts leave to a queue.

One rule: only the names that a quota mentions are limited, and a demand of none of a name is not limited by it.

Queues of one cohort lend each other what they do not use: a queue may hold its quota and up to `borrowing` more, as
long as all members together hold no more than the sum of their quotas. A member whose first job fits its own quota has
a claim to the room: nobody borrows what that job needs, so that a lender gets back what is freed before anybody borrows
again. Preemption, once there is any, would begin here: it would name the jobs that hold what is claimed.
"""

from collections.abc import Iterable, Mapping
from typing import Literal

from crds.amounts import NOTHING, Amounts
from queues import limits
from queues.lanes import Lane
from queues.values import QueueSpec


class Cohort:
    """Queues that lend to each other, while picks are made."""

    __slots__ = ("claimed", "lanes", "total", "used")

    def __init__(self, total: Amounts) -> None:
        """`total`: the sum of the members' quotas."""
        self.total = total
        self.lanes: dict[str, Lane] = {}
        self.used: dict[str, int] = {}
        self.claimed: dict[str, int] = {}
        """The most that any member's first job claims, by name."""

    def count(self) -> None:
        """Sum up anew what the members use of what is limited to them."""
        self.used = {}
        for lane in self.lanes.values():
            self.charge(lane.spec, lane.used)

    def charge(self, spec: QueueSpec, demand: Amounts) -> None:
        """A member uses more."""
        for name in spec.quota.keys() & demand.keys():
            self.used[name] = self.used.get(name, 0) + demand[name]

    def claim(self) -> None:
        """Look anew which members have a claim, and to what."""
        self.claimed = {}
        for lane in self.lanes.values():
            first = lane.first if lane.spec.open else None
            if first is not None and not beyond(lane.spec.quota, lane.used, first.demand):
                for name in lane.spec.quota.keys() & first.demand.keys():
                    self.claimed[name] = max(self.claimed.get(name, 0), first.demand[name])

    def fits(self, spec: QueueSpec, demand: Amounts, excess: Amounts) -> bool:
        """Whether all members together leave enough: for what is above the queue's quota, beside all claims."""
        for name in spec.quota:
            asked = demand.get(name, 0)
            claimed = self.claimed.get(name, 0) if name in excess else 0
            if asked > 0 and self.used.get(name, 0) + asked + claimed > self.total[name]:
                return False
        return True


def obstacle(lane: Lane, demand: Amounts, cohort: Cohort | None) -> Literal["", "quota", "cohort"]:
    """What does not let a queue take this now: its own quota with what it may borrow, or what the others have left."""
    if not lane.spec.quota:
        return ""
    excess = beyond(lane.spec.quota, lane.used, demand)
    if cohort is None:
        return "quota" if excess else ""
    if any(over > lane.spec.borrowing.get(name, over) for name, over in excess.items()):
        return "quota"
    return "" if cohort.fits(lane.spec, demand, excess) else "cohort"


def beyond(quota: Amounts, used: Amounts, demand: Amounts) -> Mapping[str, int]:
    """How far the demand would bring a queue above its own quota, by name."""
    excess = NOTHING
    for name, most in quota.items():
        asked = demand.get(name, 0)
        over = used.get(name, 0) + asked - most
        if asked > 0 and over > 0:
            excess = {**excess, name: over}
    return excess


def cohorts(specs: Iterable[QueueSpec]) -> dict[str, Cohort]:
    """All cohorts by name."""
    return {name: Cohort(total) for name, total in limits.totals(specs).items()}


def ceiling(spec: QueueSpec, cohort: Cohort | None, pool: Amounts) -> Amounts:
    """The most that a job of the queue can ever have: of its quota, its cohort (the sum of the quotas) and the pool."""
    if not spec.quota:
        return pool
    ceilings = dict(pool)
    for name, amount in spec.quota.items():
        total = amount if cohort is None else cohort.total[name]
        most = min(total, amount + spec.borrowing.get(name, total))
        ceilings[name] = min(most, ceilings.get(name, most))
    return ceilings
