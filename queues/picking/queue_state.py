"""One queue while picks are made: which of its jobs may go, and how often its first job was overtaken.

One rule: a queue's state changes only by what the store shows and by the picks made since.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Literal

from crds.resources import amounts
from crds.resources.amounts import Amounts
from queues.picking.known_entries import Candidate, KnownEntries
from queues.rules import Patience
from queues.values import OvertakenJob, QueueSnapshot

ReservationState = Literal["waits", "impossible", "unknown", "withdrawn"]
"""The state of a job for which the pool's room is or was reserved:

- waits: it is its queue's first job, has the same demand, and quota, cohort and the queue's own usage allow it;
- impossible: it is larger than its queue, its cohort or the pool can ever give;
- unknown: none of the queue's jobs is known;
- withdrawn: it left its position, changed its demand, or quota, cohort or the queue's own usage no longer allow it.
"""


class QueueState(KnownEntries):
    """The working copy of one queue."""

    __slots__ = ("eligible", "overtaken", "reservable", "spec", "used")

    def __init__(self, snapshot: QueueSnapshot, ceiling: Amounts) -> None:
        """Begin with a snapshot of the queue. `ceiling` is the most that any job of the queue can ever have."""
        self.spec = snapshot.spec
        self.used = dict(snapshot.usage)
        """The queue's usage. It follows the picks for resources that quota or pool limit; for others it does not."""
        self.overtaken = snapshot.overtaken
        """The store's record of the queue's last overtaken job."""
        self.eligible: tuple[Candidate, ...] = ()
        """The jobs that quota and cohort allow now, in order. The queue contends while there are any."""
        self.reservable = False
        """Whether the pool may reserve room for the first job: the queue contends with this job, and it would fit
        beside the queue's own usage. Else the reservation could last without end, because the owner decides when that
        usage ends."""
        super().__init__(snapshot, ceiling)

    def find_eligible(self, allows: "Allows", bypasses: int, *, scarce: bool) -> tuple[Candidate, ...]:
        """Return the jobs that quota and cohort allow now, in order.

        The result has only the first job if no other job may pass it, or none can. None can if all known jobs have one
        demand, or if the first job is allowed and no pool (`scarce`) can lack room for it.
        """
        first = self.first
        if first is None or not self.spec.open:
            return ()
        allowed = not self.spec.quota or allows(self, first.demand)
        if self.uniform or (allowed and not scarce) or not self.allows_passing(bypasses):
            return (first,) if allowed else ()
        candidates = (candidate for candidate in self.distinct() if allows(self, candidate.demand))
        if not self.is_liable and not self.is_claimed:
            return tuple(candidates)
        # A job that passes the reserved one must leave what that one needs: else the reserved room would stay idle. The
        # same holds for room that others free for the first job.
        return tuple(
            candidate
            for candidate in candidates
            if candidate.position == first.position or self.leaves_room(allows, first.demand, candidate.demand)
        )

    def leaves_room(self, allows: "Allows", needed: Amounts, demand: Amounts) -> bool:
        """Return whether quota, cohort and the room beside the queue's own usage hold both demands, in the resources
        that the second one uses."""
        both = with_needed(demand, needed)
        return allows(self, both) and amounts.fits(both, self.used, self.ceiling)

    def take(self, candidate: Candidate) -> None:
        """Mark a job as picked, and count its demand as used."""
        self.remaining -= 1
        if self.ceiling:
            charge_limited(self.used, candidate.demand, self.ceiling)
        if candidate.position == self._next:
            self._next += 1
            self.first = self._find_first()
        else:
            self._picked.add(candidate.position)

    @property
    def contends_with_first(self) -> bool:
        """Whether the queue contends with its first runnable job."""
        return bool(self.eligible) and self.first is not None and self.eligible[0].position == self.first.position

    def can_reserve(self, demand: Amounts) -> bool:
        """Return whether room may be reserved for a job.

        The job must fit beside its queue's own usage, and must not borrow quota. Other queues may take back at any
        moment what they lend, so room that is reserved for a borrower could stay idle.
        """
        if not amounts.fits(demand, self.used, self.ceiling):
            return False
        return not self.spec.cohort or amounts.fits(demand, self.used, self.spec.quota)

    @property
    def first_overtaken(self) -> OvertakenJob | None:
        """The record of how the first job was overtaken so far. A record of an earlier job does not count."""
        record = self.overtaken
        if record is None or self.first is None:
            return None
        key = self.first.waiting.entry.key
        return record if record.key is key or record.key == key else None

    def allows_passing(self, times: int) -> bool:
        """Return whether other jobs of the queue may pass the first one, if `times` jobs may pass it."""
        return not self.spec.strict and (self.first_overtaken.times if self.first_overtaken else 0) < times

    @property
    def times_overtaken(self) -> int:
        """How often other jobs went before the first one."""
        record = self.first_overtaken
        return 0 if record is None else record.times

    def record_of_first(self, now: float) -> OvertakenJob:
        """Return the record of the first job; a new one if it has none."""
        if self.first is None:
            raise ValueError(f"queue {self.spec.name} has no job that could be overtaken")
        return self.first_overtaken or OvertakenJob(key=self.first.waiting.entry.key, times=0, since=now)

    def overtake(self, now: float) -> OvertakenJob:
        """Record that another job goes before the first one, and return the record."""
        record = self.record_of_first(now)
        since = record.since if record.times else now
        self.overtaken = OvertakenJob(
            key=record.key, times=record.times + 1, since=since, kept=record.kept, claimed=record.claimed
        )
        return self.overtaken

    def mark_reserved(self) -> OvertakenJob:
        """Record that room is reserved for the first job, which was overtaken, and return the record."""
        record = self.first_overtaken
        if self.first is None or record is None:
            raise ValueError(f"queue {self.spec.name} has no job that was overtaken")
        self.overtaken = replace(record, kept=self.first.demand)
        return self.overtaken

    @property
    def is_liable(self) -> bool:
        """Whether room is or was reserved for the first job, so that the queue pays if the job is withdrawn."""
        record = self.first_overtaken
        return record is not None and record.kept is not None

    @property
    def is_claimed(self) -> bool:
        """Whether the first job has an open claim (`queues.picking.open_claims`)."""
        record = self.overtaken
        return record is not None and record.claimed and self.first_overtaken is record

    @property
    def reservation_state(self) -> ReservationState:
        """The state of the job for which room is reserved. Valid while no other job is picked."""
        record, first = self.overtaken, self.first
        if record is None or record.kept is None:
            return "withdrawn"
        if first is not None and first.waiting.entry.key == record.key:
            waits = first.demand == record.kept and (self.contends_with_first or not self.spec.open)
            return "waits" if waits else "withdrawn"
        if any(waiting.entry.key == record.key and waiting.demand == record.kept for waiting in self._unrunnable):
            return "impossible"
        return "unknown" if first is None and self.unread and not self.remaining else "withdrawn"

    def impatient_since(self, now: float, patience: Patience) -> float | None:
        """Return when the first job was first overtaken, once its patience has ended; else None.

        The result is None, too, while the job waits for something other than the pool.
        """
        record = self.first_overtaken
        return record.since if record and self.reservable and patience.ends(record, now) else None

    @property
    def is_partly_read(self) -> bool:
        """Whether entries wait behind the known ones. If none of the known ones can go, one of those might."""
        return self.unread > 0 and self.spec.open

    @property
    def is_low(self) -> bool:
        """Whether it is time to read more entries: half of those that were read are picked, or none can go."""
        if not self.unread:
            return False
        if self.remaining == self._total:
            return self.first is None
        return not self.eligible or 2 * self.remaining <= self._total


Allows = Callable[[QueueState, Amounts], bool]
"""Whether quota and cohort allow a queue to use a further demand."""


def with_needed(demand: Amounts, needed: Amounts) -> Amounts:
    """Return a demand with what another one needs of the same resources."""
    return {name: amount + (needed.get(name, 0) if amount > 0 else 0) for name, amount in demand.items()}


def price(demand: Amounts, cost: str) -> int:
    """Return what a job costs its queue: the amount of the resource that the setting `cost` names, at least 1."""
    amount = demand.get(cost, 0)
    return amount if amount > 1 else 1  # every pick needs it: a call of `max` would cost more than all the rest


def price_of(job: Candidate, cost: str) -> int:
    """Return what a job costs its queue. An entry without a demand pays for workers that the job has already."""
    return price(job.demand or job.waiting.idle_demand, cost)


def charge(used: dict[str, int], demand: Amounts) -> None:
    """Count a demand as used."""
    for name, amount in demand.items():
        used[name] = used.get(name, 0) + amount


def charge_limited(used: dict[str, int], demand: Amounts, limit: Amounts) -> None:
    """Count as used what a demand has of the resources in `limit`. Jobs may name any number of other resources."""
    for name, amount in demand.items():
        if name in limit:
            used[name] = used.get(name, 0) + amount
