"""The room of all queues while a plan is made: the free part of each limit, and the room that a waiting job lacks.

One rule: the room is a copy. The picker's queues, cohorts and pool stay unchanged. Workers that are on their way out
count as gone.
"""

from collections.abc import Iterable, Mapping
from typing import Literal

from crds.resources import amounts
from crds.resources.amounts import NOTHING, Amounts
from queues.picking import quotas
from queues.picking.picker import Picker
from queues.picking.queue_state import Candidate, QueueState
from queues.picking.quotas import Cohort
from queues.resizing.values import ElasticJob

Limit = Literal["quota", "cohort", "pool"]
LIMITS: tuple[Limit, ...] = ("quota", "cohort", "pool")
"""The limits of a waiting job, in the order in which they are judged."""


class Room:
    """The amounts that queues, cohorts and the pool use once the workers of a plan are gone."""

    def __init__(self, picker: Picker, queues: Mapping[str, QueueState], jobs: Iterable[ElasticJob]) -> None:
        """Begin with the state of the picker. Each of the `jobs` belongs to one of the queues."""
        self._picker = picker
        self.queues = queues
        self.capacity: Amounts = picker.pool.capacity
        self.pool_used = dict(picker.pool.used)
        self._used: dict[str, dict[str, int]] = {}
        self._cohort_used: dict[str, dict[str, int]] = {}
        self._claims: dict[str, dict[str, int]] = {}
        self._satisfied: set[str] = set()
        """The queues whose claims are satisfied."""
        self._idle: dict[str, dict[str, int]] = {}
        self._held: dict[str, dict[str, int]] = {}
        for job in jobs:
            if job.idle > job.leaving:
                amounts.increase(self._idle.setdefault(job.queue, {}), job.unit, job.idle - job.leaving)
            if job.leaving:
                self.give(job, job.leaving, idle=False)

    def used(self, queue: str) -> Amounts:
        """Return the amounts that a queue uses."""
        changed = self._used.get(queue)
        return self.queues[queue].used if changed is None else changed

    def idle(self, queue: str) -> Amounts:
        """Return the amounts that the idle growth of a queue uses."""
        return self._idle.get(queue, NOTHING)

    def held(self, queue: str) -> Amounts:
        """Return the amounts that the running jobs of a queue use."""
        held = self._held.get(queue)
        return self.queues[queue].used if held is None else held

    def give(self, job: ElasticJob, workers: int, *, idle: bool) -> None:
        """Count workers of a job as gone; as there again if the number is below 0. `idle`: they are idle growth."""
        if job.queue not in self._held:
            self._held[job.queue] = dict(self.queues[job.queue].used)
        amounts.increase(self._held[job.queue], job.unit, -workers)
        if idle:
            amounts.increase(self._idle[job.queue], job.unit, -workers)
        self.charge(job.queue, job.unit, -workers)

    def charge(self, queue: str, demand: Amounts, times: int = 1) -> None:
        """Count a demand of a queue as used, or as free if `times` is below 0."""
        state = self.queues[queue]
        if queue not in self._used:
            self._used[queue] = dict(state.used)
        amounts.increase(self._used[queue], demand, times)
        amounts.increase(self.pool_used, demand, times)
        cohort = self.cohort(state)
        if cohort is not None:
            if state.spec.cohort not in self._cohort_used:
                self._cohort_used[state.spec.cohort] = dict(cohort.used)
            used = self._cohort_used[state.spec.cohort]
            limited = {name: demand[name] for name in state.spec.quota if name in demand}
            amounts.increase(used, limited, times)

    def reserve(self, demand: Amounts) -> None:
        """Count a demand as used in the pool alone."""
        amounts.increase(self.pool_used, demand)

    def cohort(self, queue: QueueState) -> Cohort | None:
        """Return the cohort of a queue; None if the queue has no cohort."""
        return self._picker.cohort(queue.spec.cohort) if queue.spec.cohort else None

    def cohort_used(self, cohort: str) -> Amounts:
        """Return the amounts that all members of a cohort use."""
        found = self._picker.cohort(cohort)
        return self._cohort_used.get(cohort, NOTHING if found is None else found.used)

    def claims(self, cohort: str) -> Mapping[str, int]:
        """Return the amounts that the members of a cohort claim, without the claims that are satisfied."""
        if cohort not in self._claims:
            found = self._picker.cohort(cohort)
            self._claims[cohort] = {} if found is None else dict(found.claims)
        return self._claims[cohort]

    def satisfy(self, queue: QueueState, job: Candidate) -> None:
        """Note that a waiting job is charged, so that it claims nothing any more."""
        cohort = self.cohort(queue)
        claim = NOTHING if cohort is None else cohort.claim_of(queue, job)
        if claim:
            claims = dict(self.claims(queue.spec.cohort))
            amounts.increase(claims, claim, -1)
            self._claims[queue.spec.cohort] = claims
            self._satisfied.add(queue.spec.name)

    def lacking(self, limit: Limit, queue: QueueState, demand: Amounts) -> Amounts:
        """Return how much of each resource a limit lacks for a demand of a queue."""
        if limit == "pool":
            return self._lacking_pool(demand)
        return self._lacking_cohort(queue, demand) if limit == "cohort" else self._lacking_quota(queue, demand)

    def beyond_quota(self, queue: QueueState, demand: Amounts) -> Amounts:
        """Return how far a demand would bring a queue above its own quota."""
        return quotas.beyond(queue.spec.quota, self.used(queue.spec.name), demand)

    def counts(self, limit: Limit, queue: str, name: str) -> bool:
        """Return whether a queue's use of a resource counts for a limit that lacks the resource."""
        return limit != "cohort" or name in self.queues[queue].spec.quota

    def fits(self, queue: QueueState, demand: Amounts) -> bool:
        """Return whether no limit lacks room for a demand of a queue."""
        if not amounts.fits(demand, self.pool_used, self.capacity):
            return False
        return not queue.spec.quota or not (self._lacking_quota(queue, demand) or self._lacking_cohort(queue, demand))

    def lacks(self, queue: QueueState, demand: Amounts) -> Limit | None:
        """Return the first limit that lacks room for a demand of a queue."""
        return next((limit for limit in LIMITS if self.lacking(limit, queue, demand)), None)

    def covers(self, queue: QueueState, demand: Amounts) -> bool:
        """Return whether a queue's own quota covers a demand."""
        return not self.beyond_quota(queue, demand)

    def borrows(self, queue: str) -> bool:
        """Return whether a queue uses more than its own quota."""
        used = self.used(queue)
        return any(used.get(name, 0) > most for name, most in self.queues[queue].spec.quota.items())

    def _lacking_pool(self, demand: Amounts) -> Amounts:
        lack, capacity, used = NOTHING, self.capacity, self.pool_used
        if capacity:
            for name, amount in demand.items():
                most = amounts.limit_for(capacity, name) if amount > 0 else None
                if most is not None and (over := used.get(name, 0) + amount - most) > 0:
                    lack = {**lack, name: over}
        return lack

    def _lacking_quota(self, queue: QueueState, demand: Amounts) -> Amounts:
        over = self.beyond_quota(queue, demand)
        if not over or not queue.spec.cohort:
            return over
        borrowing = queue.spec.borrowing
        return {name: more - borrowing[name] for name, more in over.items() if more > borrowing.get(name, more)}

    def _lacking_cohort(self, queue: QueueState, demand: Amounts) -> Amounts:
        cohort = self.cohort(queue)
        if cohort is None:
            return NOTHING
        own, lack = self.used(queue.spec.name), NOTHING
        used = self.cohort_used(queue.spec.cohort)
        collected = NOTHING if queue.spec.name in self._satisfied else quotas.collected(queue)
        for name, quota in queue.spec.quota.items():
            amount = demand.get(name, 0)
            if amount > 0:
                borrows = own.get(name, 0) + amount > quota
                claimed = self.claims(queue.spec.cohort).get(name, 0) - collected.get(name, 0) if borrows else 0
                if (over := used.get(name, 0) + amount + claimed - cohort.total[name]) > 0:
                    lack = {**lack, name: over}
        return lack
