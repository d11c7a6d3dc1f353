"""What quotas and cohorts leave to a queue.

One rule: only the names that a quota mentions are limited, and a demand of none of a name is not limited by it.

Queues of one cohort lend each other what they do not use: a queue may hold its quota and up to `borrowing` more, as
long as all members together hold no more than the sum of their quotas. If the first job that a member's own limits let
go fits its quota, it has a claim to the room: nobody borrows what all such jobs need together, so that lenders get back
what is freed before anybody borrows again. Preemption, once there is any, would begin here: it would name the jobs that
hold what is claimed.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from crds.resources import amounts
from crds.resources.amounts import NOTHING, Amounts
from queues.picking.queue_state import Candidate, Lane
from queues.values import QueueSpec


class Cohort:
    """Queues that lend to each other, while picks are made."""

    __slots__ = (
        "_asked",
        "_bypasses",
        "_claimed",
        "_claims",
        "_largest",
        "_members",
        "_most",
        "_room",
        "lanes",
        "roomy",
        "total",
        "used",
    )

    def __init__(self, members: Sequence[QueueSpec], bypasses: int) -> None:
        """Of these queues, all of one cohort, whose first jobs so many others may pass."""
        self._bypasses = bypasses
        self._members = len(members)
        self._largest = {name: max(each.quota.get(name, 0) for each in members) for name in _limited(members)}
        """The largest quota of any member, by name: what is more is nobody's claim."""
        self.total = {name: sum(each.quota.get(name, 0) for each in members) for name in self._largest}
        """The sum of the members' quotas."""
        self.lanes: dict[str, Lane] = {}
        self.used: dict[str, int] = {}
        self.roomy = True
        """Whether it stands in nobody's way: there is room for the most that was ever asked, beside the largest claim
        that was, if every member had it."""
        self._claimed: dict[str, int] | None = None
        self._asked = NOTHING
        self._most = NOTHING
        self._claims = NOTHING
        self._room: dict[str, int] = {}
        """The room for all that, by name."""

    def count(self) -> None:
        """Sum up anew what the members use of what is limited to them."""
        used: dict[str, int] = {}
        for lane in self.lanes.values():
            theirs = lane.used
            for name in lane.spec.quota:
                if name in theirs:
                    used[name] = used.get(name, 0) + theirs[name]
        self.used = used
        self._claimed = None
        self.roomy = self._is_roomy()

    def lead_anew(self) -> bool:
        """A member's first job is another one, perhaps. Whether that concerns the others."""
        self._claimed = None
        return not self.roomy

    def charge(self, spec: QueueSpec, demand: Amounts) -> None:
        """A member uses more."""
        self._claimed = None
        used, total, room = self.used, self.total, self._room
        for name in spec.quota:
            if name in demand:
                sum_of_all = used[name] = used.get(name, 0) + demand[name]
                if sum_of_all + room.get(name, 0) > total[name]:
                    self.roomy = False

    def ask(self, demand: Amounts) -> None:
        """A member's first job is that large, or it might take one that is."""
        if demand is self._asked:
            return
        self._asked = demand
        if _more(demand, self._most, self.total):
            self._most = amounts.peak(self._most, demand)
        elif not _more(demand, self._claims, self.total):
            return
        if amounts.fits(demand, NOTHING, self._largest):
            self._claims = amounts.peak(self._claims, demand)
        self._room = {name: self._most.get(name, 0) + self._members * self._claims.get(name, 0) for name in self.total}
        self.roomy = self.roomy and self._is_roomy()

    def _is_roomy(self) -> bool:
        return amounts.fits(self._room, self.used, self.total)

    @property
    def claimed(self) -> Amounts:
        """What the members claim together, by name."""
        if self._claimed is None:
            self._claimed = {}
            for lane in self.lanes.values():
                claimant = self._claimant(lane)
                if claimant is not None and not beyond(lane.spec.quota, lane.used, claimant.demand):
                    for name in lane.spec.quota.keys() & claimant.demand.keys():
                        self._claimed[name] = self._claimed.get(name, 0) + claimant.demand[name]
        return self._claimed

    def _claimant(self, lane: Lane) -> Candidate | None:
        """The first job of a member that its own limits let go."""
        first = lane.first if lane.spec.open else None
        if first is None or not _limited_by_itself(lane, beyond(lane.spec.quota, lane.used, first.demand)):
            return first
        if lane.uniform or not lane.lets_pass(self._bypasses):
            return None
        free = (
            each
            for each in lane.distinct()
            if not _limited_by_itself(lane, beyond(lane.spec.quota, lane.used, each.demand))
        )
        return next(free, None)

    def fits(self, spec: QueueSpec, demand: Amounts, excess: Amounts) -> bool:
        """Whether all members together leave enough: for what is above the queue's quota, beside all claims."""
        self.ask(demand)
        if self.roomy:
            return True
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
    if excess and _limited_by_itself(lane, excess):
        return "quota"
    return "" if cohort.fits(lane.spec, demand, excess) else "cohort"


def leaves(cohort: Cohort, demand: Amounts, lane: Lane, asked: Amounts) -> bool:
    """Whether, after another member has taken a demand, a queue still may take what it asks for. A queue that has to
    borrow may not be sure of that: what is lent to it depends on all that the members claim by then."""
    if not any(demand.get(name, 0) for name in cohort.total):
        return True
    if beyond(lane.spec.quota, lane.used, asked):
        return False
    both = amounts.add(demand, asked)
    return all(cohort.used.get(name, 0) + both[name] <= cohort.total[name] for name in lane.spec.quota if name in asked)


def _limited_by_itself(lane: Lane, excess: Amounts) -> bool:
    """Whether so much above its quota is more than a member may borrow."""
    return any(over > lane.spec.borrowing.get(name, over) for name, over in excess.items())


def beyond(quota: Amounts, used: Amounts, demand: Amounts) -> Mapping[str, int]:
    """How far the demand would bring a queue above its own quota, by name."""
    excess = NOTHING
    for name, most in quota.items():
        asked = demand.get(name, 0)
        if asked > 0 and (over := used.get(name, 0) + asked - most) > 0:
            excess = {**excess, name: over}
    return excess


def cohorts(specs: Iterable[QueueSpec], bypasses: int = 0) -> dict[str, Cohort]:
    """All cohorts by name; `bypasses`: how many jobs may pass a queue's first one."""
    members: dict[str, list[QueueSpec]] = {}
    for spec in specs:
        if spec.cohort:
            members.setdefault(spec.cohort, []).append(spec)
    return {name: Cohort(each, bypasses) for name, each in members.items()}


def _more(demand: Amounts, known: Amounts, names: Iterable[str]) -> bool:
    return any(demand.get(name, 0) > known.get(name, 0) for name in names)


def _limited(specs: Iterable[QueueSpec]) -> set[str]:
    return {name for spec in specs for name in spec.quota}


def ceiling(spec: QueueSpec, cohort: Cohort | None, pool: Amounts) -> Amounts:
    """The most that a job of the queue can ever have: of its quota, its cohort (the sum of the quotas) and the pool."""
    if not spec.quota:
        return pool
    ceilings = dict(pool)
    for name, amount in spec.quota.items():
        total = amount if cohort is None else cohort.total[name]
        most = min(total, amount + spec.borrowing.get(name, total))
        in_pool = amounts.most(pool, name)
        ceilings[name] = most if in_pool is None else min(most, in_pool)
    return ceilings
