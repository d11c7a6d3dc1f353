"""What quotas and cohorts leave to a queue.

One rule: a quota limits only the resources that it names, and a demand of none of a resource is not limited by it.

Queues of one cohort lend each other what they do not use. A queue may use its quota and up to `borrowing` more, while
all members together use no more than the sum of their quotas. A member has a claim if the first job that the member's
own limits allow fits its quota. No queue borrows what all such jobs need together, so lenders get back what is freed
before another loan. An open claim (`queues.picking.open_claims`) counts even before the member's own quota has room for
the whole job: as much of the quota as is free. The job for which the cohort collects (`queues.picking.collected_room`)
claims all that it asks for, towards loans alone. Preemption would begin here: it would name the jobs that use what is
claimed.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from crds.resources import amounts
from crds.resources.amounts import NOTHING, Amounts
from queues.picking.queue_state import Candidate, QueueState
from queues.values import QueueSpec


class Cohort:
    """Queues that lend to each other, while picks are made."""

    __slots__ = (
        "_claimed",
        "_largest",
        "_largest_claim",
        "_last_demand",
        "_members",
        "_most",
        "_needed",
        "queues",
        "roomy",
        "total",
        "used",
    )

    def __init__(self, members: Sequence[QueueSpec]) -> None:
        """`members` are all queues of one cohort."""
        self._members = len(members)
        self._largest = {name: max(spec.quota.get(name, 0) for spec in members) for name in _quota_resources(members)}
        """The largest quota of any member, by resource. A larger demand is no claim."""
        self.total = {name: sum(spec.quota.get(name, 0) for spec in members) for name in self._largest}
        """The sum of the members' quotas."""
        self.queues: dict[str, QueueState] = {}
        self.used: dict[str, int] = {}
        self.roomy = True
        """Whether the cohort refuses no demand: there is room for the largest demand so far, beside the largest claim
        so far for every member."""
        self._claimed: dict[str, int] | None = None
        self._last_demand = NOTHING
        self._most = NOTHING
        self._largest_claim = NOTHING
        self._needed: dict[str, int] = {}
        """The room that `roomy` asks for, by resource."""

    def count(self) -> None:
        """Sum up what the members use of the resources that limit them."""
        used: dict[str, int] = {}
        for queue in self.queues.values():
            usage = queue.used
            for name in queue.spec.quota:
                if name in usage:
                    used[name] = used.get(name, 0) + usage[name]
        self.used = used
        self._claimed = None
        self.roomy = self._has_needed() and not any(queue.collects for queue in self.queues.values())

    def first_changed(self) -> bool:
        """Note that a member's first job may be another one, and return whether that concerns the other members."""
        self._claimed = None
        return not self.roomy

    def note_claim(self, queue: QueueState) -> None:
        """Note that a member's first job has an open claim, or has none any more."""
        self._claimed = None
        if queue.first is not None and queue.is_claimed:
            self.observe(queue.first.demand)
            self.roomy = self.roomy and not queue.collects

    def charge(self, spec: QueueSpec, demand: Amounts) -> None:
        """Count a member's demand as used."""
        self._claimed = None
        used, total, needed = self.used, self.total, self._needed
        for name in spec.quota:
            if name in demand:
                sum_of_all = used[name] = used.get(name, 0) + demand[name]
                if sum_of_all + needed.get(name, 0) > total[name]:
                    self.roomy = False

    def observe(self, demand: Amounts) -> None:
        """Note a demand of a member: `roomy` must have room for the largest one."""
        if demand is self._last_demand:
            return
        self._last_demand = demand
        if _exceeds(demand, self._most, self.total):
            self._most = amounts.peak(self._most, demand)
        elif not _exceeds(demand, self._largest_claim, self.total):
            return
        if amounts.fits(demand, NOTHING, self._largest):
            self._largest_claim = amounts.peak(self._largest_claim, demand)
        self._needed = {
            name: self._most.get(name, 0) + self._members * self._largest_claim.get(name, 0) for name in self.total
        }
        self.roomy = self.roomy and self._has_needed()

    def _has_needed(self) -> bool:
        return amounts.fits(self._needed, self.used, self.total)

    @property
    def claims(self) -> Amounts:
        """The sum of the members' claims, by resource."""
        if self._claimed is None:
            self._claimed = {}
            for queue in self.queues.values():
                claimant = self.claimant(queue)
                if claimant is not None:
                    for name in queue.spec.quota.keys() & claimant.demand.keys():
                        self._claimed[name] = self._claimed.get(name, 0) + claimant.demand[name]
                elif queue.is_claimed:
                    amounts.increase(self._claimed, _free_part(queue))
        return self._claimed

    def claim_of(self, queue: QueueState, job: Candidate) -> Amounts:
        """Return which part of the claims a job of a member has."""
        claimant = self.claimant(queue)
        if claimant is not None:
            limited = queue.spec.quota.keys() & claimant.demand.keys()
            return {name: claimant.demand[name] for name in limited} if claimant.position == job.position else NOTHING
        is_first = queue.first is not None and queue.first.position == job.position
        return _free_part(queue) if is_first and queue.is_claimed else NOTHING

    def claimant(self, queue: QueueState) -> Candidate | None:
        """Return the job for which a member has a claim; None if it has no claim."""
        if queue.collects:
            return queue.first
        job = self._first_allowed(queue)
        return None if job is None or beyond(queue.spec.quota, queue.used, job.demand) else job

    def _first_allowed(self, queue: QueueState) -> Candidate | None:
        """Return the first job of a member that the member's own limits allow."""
        first = queue.first if queue.spec.open else None
        if first is None or not _exceeds_borrowing(queue, beyond(queue.spec.quota, queue.used, first.demand)):
            return first
        if queue.uniform or queue.is_claimed or queue.spec.strict:
            return None
        candidates = (
            candidate
            for candidate in queue.distinct()
            if not _exceeds_borrowing(queue, beyond(queue.spec.quota, queue.used, candidate.demand))
        )
        return next(candidates, None)

    def borrowers(self) -> list[str]:
        """Return the members that use more than their quotas."""
        return sorted(
            name
            for name, queue in self.queues.items()
            if any(queue.used.get(resource, 0) > most for resource, most in queue.spec.quota.items())
        )

    def fits(self, queue: QueueState, demand: Amounts, excess: Amounts) -> bool:
        """Return whether the members leave room for a demand. What is above the queue's quota must fit beside all
        claims, but for what is collected for the queue itself: other jobs of the queue leave that."""
        self.observe(demand)
        return self.roomy or self.leaves_claims(queue.spec, demand, excess, collected(queue))

    def leaves_claims(self, spec: QueueSpec, demand: Amounts, excess: Amounts, own_claim: Amounts = NOTHING) -> bool:
        """Return `fits` without `observe`. `own_claim` is the part of the claims that the demand itself satisfies."""
        for name in spec.quota:
            amount = demand.get(name, 0)
            claimed = self.claims.get(name, 0) - own_claim.get(name, 0) if name in excess else 0
            if amount > 0 and self.used.get(name, 0) + amount + claimed > self.total[name]:
                return False
        return True


def _free_part(queue: QueueState) -> Amounts:
    """Return what the first job of a queue, which has an open claim, finds free of the queue's own quota already."""
    quota, demand = queue.spec.quota, NOTHING if queue.first is None or not queue.spec.open else queue.first.demand
    if not amounts.fits(demand, NOTHING, quota):
        return NOTHING
    free = {name: quota[name] - queue.used.get(name, 0) for name in quota.keys() & demand.keys()}
    return {name: min(demand[name], amount) for name, amount in free.items() if amount > 0}


def collected(queue: QueueState) -> Amounts:
    """Return what is collected for a queue: all that its first job asks for."""
    return queue.first.demand if queue.collects and queue.first is not None else NOTHING


def has_to_borrow(queue: QueueState) -> bool:
    """Return whether a queue's first job asks for more than the queue's whole quota."""
    return queue.first is not None and not amounts.fits(queue.first.demand, NOTHING, queue.spec.quota)


def may_borrow(queue: QueueState) -> bool:
    """Return whether a queue's first job asks for more than its whole quota, and its own limits allow it to borrow."""
    first = queue.first if queue.spec.open and has_to_borrow(queue) else None
    return first is not None and not _exceeds_borrowing(queue, beyond(queue.spec.quota, queue.used, first.demand))


def lacks_loan(queue: QueueState, cohort: Cohort) -> bool:
    """Return whether a queue's first job may borrow, and nothing but the other members refuses it."""
    first = queue.first if may_borrow(queue) else None
    excess = NOTHING if first is None else beyond(queue.spec.quota, queue.used, first.demand)
    return first is not None and not cohort.leaves_claims(queue.spec, first.demand, excess, collected(queue))


def obstacle(queue: QueueState, demand: Amounts, cohort: Cohort | None) -> Literal["", "quota", "cohort"]:
    """Return what refuses a demand now: the queue's quota with what it may borrow, or the other members; else ""."""
    if not queue.spec.quota:
        return ""
    excess = beyond(queue.spec.quota, queue.used, demand)
    if cohort is None:
        return "quota" if excess else ""
    if excess and _exceeds_borrowing(queue, excess):
        return "quota"
    return "" if cohort.fits(queue, demand, excess) else "cohort"


def allows_further(queue: QueueState, job: Candidate, demand: Amounts, cohort: Cohort | None) -> bool:
    """Return whether quota and cohort allow a job of a queue to take a demand above its least.

    Only the least is a claim, so the cohort does not note this demand.
    """
    excess = beyond(queue.spec.quota, queue.used, demand)
    if cohort is None:
        return not excess
    if excess and _exceeds_borrowing(queue, excess):
        return False
    claimant = cohort.claimant(queue) if excess else None
    own_claim = claimant.demand if claimant is not None and claimant.position == job.position else collected(queue)
    return cohort.leaves_claims(queue.spec, demand, excess, own_claim)


def leaves_room(cohort: Cohort, demand: Amounts, queue: QueueState, needed: Amounts) -> bool:
    """Return whether a queue may still take what it needs after another member has taken a demand.

    It is False for a queue that has to borrow: its loan depends on all that the members claim by then.
    """
    if not any(demand.get(name, 0) for name in cohort.total):
        return True
    if beyond(queue.spec.quota, queue.used, needed):
        return False
    both = amounts.add(demand, needed)
    return all(
        cohort.used.get(name, 0) + both[name] <= cohort.total[name] for name in queue.spec.quota if name in needed
    )


def _exceeds_borrowing(queue: QueueState, excess: Amounts) -> bool:
    """Return whether an excess over its quota is more than a queue may borrow."""
    return any(over > queue.spec.borrowing.get(name, over) for name, over in excess.items())


def beyond(quota: Amounts, used: Amounts, demand: Amounts) -> Mapping[str, int]:
    """Return how far a demand would bring a queue above its quota, by resource."""
    excess = NOTHING
    for name, limit in quota.items():
        amount = demand.get(name, 0)
        if amount > 0 and (over := used.get(name, 0) + amount - limit) > 0:
            excess = {**excess, name: over}
    return excess


def cohorts(specs: Iterable[QueueSpec]) -> dict[str, Cohort]:
    """Return all cohorts by name."""
    members: dict[str, list[QueueSpec]] = {}
    for spec in specs:
        if spec.cohort:
            members.setdefault(spec.cohort, []).append(spec)
    return {name: Cohort(specs_of_one) for name, specs_of_one in members.items()}


def _exceeds(demand: Amounts, most: Amounts, names: Iterable[str]) -> bool:
    return any(demand.get(name, 0) > most.get(name, 0) for name in names)


def _quota_resources(specs: Iterable[QueueSpec]) -> set[str]:
    return {name for spec in specs for name in spec.quota}


def ceiling(spec: QueueSpec, cohort: Cohort | None, pool: Amounts) -> Amounts:
    """Return the most that a job of a queue can ever have of its quota, its cohort (the sum of quotas) and the pool."""
    if not spec.quota:
        return pool
    ceilings = dict(pool)
    for name, amount in spec.quota.items():
        total = amount if cohort is None else cohort.total[name]
        most = min(total, amount + spec.borrowing.get(name, total))
        in_pool = amounts.limit_for(pool, name)
        ceilings[name] = most if in_pool is None else min(most, in_pool)
    return ceilings
