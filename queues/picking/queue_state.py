"""One queue while picks are made: which of its jobs may be picked, and how often its first job was overtaken.

One rule: a queue's state changes only by what the store shows and by the picks made since. A job that is larger than
its queue, its cohort or the pool can ever give, or whose pods no nodes could hold, is skipped: it delays no other job.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from crds.resources import amounts
from crds.resources.amounts import NOTHING, Amounts
from queues.placement.gangs import Gang
from queues.values import NextEntries, OvertakenJob, QueueSnapshot, WaitingEntry

Shape = frozenset[tuple[str, int]]
"""A demand as a hashable value. Equal demands have equal shapes."""


@dataclass(slots=True)
class Candidate:
    """A known job that its queue, its cohort and the pool could run one day."""

    waiting: WaitingEntry
    demand: Amounts
    position: int
    """The index among the known entries. The first runnable job of a queue has the lowest index."""
    units: int = 0
    """The number of further workers that `demand` covers (`Entry.most`)."""


class QueueState:
    """The working copy of one queue: its entries that were read from the store, and which of them are picked."""

    __slots__ = (
        "_next",
        "_picked",
        "_positions",
        "_total",
        "_unrunnable",
        "bid_demand",
        "bid_gang",
        "ceiling",
        "eligible",
        "entries",
        "first",
        "others",
        "overtaken",
        "remaining",
        "requested",
        "reservable",
        "spec",
        "uniform",
        "unread",
        "used",
        "was_searched",
    )

    def __init__(self, snapshot: QueueSnapshot, ceiling: Amounts) -> None:
        """Begin with a snapshot of the queue. `ceiling` is the most that any job of the queue can ever have."""
        self.spec = snapshot.spec
        self.used = dict(snapshot.usage)
        """The queue's usage. The usage follows the picks only for resources that quota or pool limit."""
        self.overtaken = snapshot.overtaken
        """The store's record of the queue's last overtaken job."""
        self.eligible: tuple[Candidate, ...] = ()
        """The jobs that quota and cohort allow now, in order. The queue contends while there are such jobs."""
        self.reservable = False
        """Whether the pool may reserve room for the first job: the queue contends with this job, and it would fit
        beside the queue's own usage. Else the reservation could last without end, because the owner decides when that
        usage ends."""
        self.ceiling = ceiling
        self.bid_demand: Amounts | None = None
        """The demand of the first job, if the queue bids for this job alone (`queues.picking.fair_share`)."""
        self.bid_gang: Gang | None = None
        """The gang of that job."""
        self.requested: int | None = None
        """How many known entries remained when more were requested from the store; None: no request is under way."""
        self._set(snapshot.heads, snapshot.waiting - len(snapshot.heads))

    def _set(self, entries: Sequence[WaitingEntry], unread: int) -> None:
        self.entries = entries
        self.others: list[Candidate] = []
        """Jobs behind the known entries that asked for another demand than all known jobs when the jobs were read, in
        order."""
        self.was_searched = False
        """Whether a search has looked for `others` since the known entries were read."""
        self.unread = unread
        """How many entries wait behind the known ones."""
        self.remaining = self._total = len(entries)
        """How many of the known entries are not picked."""
        demand = entries[0].demand if entries else NOTHING  # most equal demands are one object
        gang = entries[0].gang if entries else None
        self.uniform = not [
            entry
            for entry in entries
            if entry.gang is not gang or (entry.demand is not demand and entry.demand != demand)
        ]
        """Whether all known entries have the same demand, and the same gang."""
        self._next = 0
        """The position from which the first runnable job is searched."""
        self._unrunnable: list[WaitingEntry] = []
        """The known entries before the first runnable job."""
        self._picked: set[int] = set()
        """The positions of picked entries behind the first runnable job."""
        self._positions: dict[tuple[Shape, Gang | None], deque[int]] | None = None
        self.first = self._find_first()
        """The first known job that could ever run."""

    def extend(self, snapshot: QueueSnapshot | NextEntries) -> None:
        """Append entries from behind the known ones. Some known entries may have been picked since the request.

        If the new entries do not follow the known ones, all known entries are dropped.
        """
        expected, self.requested = self.remaining if self.requested is None else self.requested, None
        if snapshot.after == expected:
            picked = expected - self.remaining
            entries = self.entries[self._next :]
            if self._picked:
                entries = [entry for position, entry in enumerate(entries, self._next) if position not in self._picked]
            extended = [*self._unrunnable, *entries, *snapshot.heads]
            self._set(extended, snapshot.waiting - picked - len(extended))
        else:
            self._set((), snapshot.waiting)

    def set_others(self, entries: Sequence[WaitingEntry]) -> None:
        """Note that a search has found jobs: they replace `others`, but for the queue's first job if it is one of
        them. If the search has found none, `others` stay."""
        self.was_searched = True
        if entries:
            kept = [] if self._next < len(self.entries) else self.others[:1]
            behind = kept[0].position + 1 if kept else len(self.entries)  # no known entry has such a position
            runnable = ((at, entry) for at, entry in enumerate(entries, behind) if self._can_run(entry))
            self.others = [*kept, *(Candidate(entry, entry.demand, at) for at, entry in runnable)]
            self.first = self._find_first()

    def demands(self) -> Collection[Amounts]:
        """Return the distinct demands of all known jobs that wait. Jobs whose pods no nodes could hold are left out:
        another job with the same demand may find nodes."""
        too_large = (entry for entry in self._unrunnable if entry.placeable)
        known = chain(too_large, (candidate.waiting for candidate in self.distinct()))
        return {shape(entry.demand): entry.demand for entry in known}.values()

    def distinct(self) -> Iterator[Candidate]:
        """Yield the first runnable job of each distinct demand and gang, in order."""
        if self._positions is None:
            self._positions = self._group_by_shape()
        for positions in self._positions.values():
            while positions and (positions[0] < self._next or positions[0] in self._picked):
                positions.popleft()
        for position in sorted(positions[0] for positions in self._positions.values() if positions):
            yield Candidate(self.entries[position], self.entries[position].demand, position)
        seen: set[tuple[Shape, Gang | None]] = set()
        for other in self.others:
            key = shape(other.demand), other.waiting.gang
            if key not in seen:
                seen.add(key)
                yield other

    def runnable(self) -> Iterator[Candidate]:
        """Yield the runnable jobs that are known and not picked, in order."""
        for position in range(self._next, len(self.entries)):
            entry = self.entries[position]
            if position not in self._picked and self._can_run(entry):
                yield Candidate(entry, entry.demand, position)
        yield from self.others

    @property
    def is_exhausted(self) -> bool:
        """Whether the queue's next job is unread, because all known runnable entries are picked."""
        return self.unread > 0 and (not self.remaining or self.remaining < self._total) and self.first is None

    @property
    def has_only_unrunnable(self) -> bool:
        """Whether none of the known entries can ever run, though more entries wait behind them."""
        return self.unread > 0 and self.first is None and 0 < self.remaining == self._total

    def end_reading(self) -> None:
        """Note that no more entries are read: the queue then counts as one whose known entries can never run."""
        self._total = self.remaining

    def _find_first(self) -> Candidate | None:
        entries, position = self.entries, self._next
        while position < len(entries):
            waiting = entries[position]
            if position not in self._picked:
                demand = waiting.demand
                # Most jobs have the demand of the one before.
                if (demand is self.bid_demand and waiting.placeable) or self._can_run(waiting):
                    self._next = position
                    return Candidate(waiting, demand, position)
                self._unrunnable.append(waiting)
            position += 1
        self._next = position
        return self.others[0] if self.others else None

    def _can_run(self, entry: WaitingEntry) -> bool:
        """Return whether a job could run one day."""
        return entry.placeable and amounts.fits(entry.demand, NOTHING, self.ceiling)

    def _group_by_shape(self) -> dict[tuple[Shape, Gang | None], deque[int]]:
        positions: dict[tuple[Shape, Gang | None], deque[int]] = {}
        for position in range(self._next, len(self.entries)):
            entry = self.entries[position]
            if position not in self._picked and self._can_run(entry):
                positions.setdefault((shape(entry.demand), entry.gang), deque()).append(position)
        return positions

    def find_eligible(self, allows: "Allows", *, scarce: bool) -> tuple[Candidate, ...]:
        """Return the jobs that quota and cohort allow now, in order.

        The result has only the first job if no other job may pass it or can pass it. No job can pass it if all known
        jobs have one demand, or if the first job is allowed and no pool (`scarce`) can lack room for it.
        """
        first = self.first
        if first is None or not self.spec.open:
            return ()
        allowed = not self.spec.quota or allows(self, first.demand)
        if (self.uniform and not self.others) or (allowed and not scarce) or self.spec.strict:
            return (first,) if allowed else ()
        candidates = (candidate for candidate in self.distinct() if allows(self, candidate.demand))
        if not self.is_liable and not self.is_claimed:
            return tuple(candidates)
        # A job that passes the job with reserved room must leave what that job needs, or the reserved room would stay
        # idle. The same holds for room that other jobs free for the first job.
        return tuple(
            candidate
            for candidate in candidates
            if candidate.position == first.position or self.leaves_room(allows, first.demand, candidate.demand)
        )

    def leaves_room(self, allows: "Allows", needed: Amounts, demand: Amounts) -> bool:
        """Return whether quota, cohort and the room beside the queue's own usage hold both demands, in the resources
        that the second demand uses."""
        both = with_needed(demand, needed)
        return allows(self, both) and amounts.fits(both, self.used, self.ceiling)

    def take(self, candidate: Candidate) -> None:
        """Mark a job as picked, and count its demand as used."""
        if self.ceiling:
            amounts.increase_limited(self.used, candidate.demand, self.ceiling)
        self.drop(candidate)

    def drop(self, candidate: Candidate) -> None:
        """Mark a job as no longer waiting in this queue."""
        if candidate.position >= len(self.entries):
            self.unread -= 1
            self.others = [other for other in self.others if other.position != candidate.position]
            self.was_searched = bool(self.others)
            self.first = self._find_first()
            return
        self.remaining -= 1
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

    def record_of_first(self, now: float) -> OvertakenJob:
        """Return the record of the first job; a new record if the first job has none."""
        if self.first is None:
            raise ValueError(f"queue {self.spec.name} has no job that could be overtaken")
        if (record := self.first_overtaken) is not None:
            return record
        # The next job inherits the number: else an owner who withdraws jobs could idle the cohort without end.
        uncollected = 0 if self.overtaken is None else self.overtaken.uncollected
        return OvertakenJob(key=self.first.waiting.entry.key, times=0, since=now, uncollected=uncollected)

    def overtake(self, now: float) -> OvertakenJob:
        """Record that another job is picked before the first job, and return the record."""
        record = self.record_of_first(now)
        since = record.since if record.times or record.impatient else now
        self.overtaken = replace(record, times=record.times + 1, since=since)
        return self.overtaken

    def mark_reserved(self, now: float) -> OvertakenJob:
        """Record that room is reserved for the first job, which was overtaken, and return the record."""
        record = self.first_overtaken
        if self.first is None or record is None:
            raise ValueError(f"queue {self.spec.name} has no job that was overtaken")
        self.overtaken = replace(record, kept=self.first.demand, kept_since=now, paid=now)
        return self.overtaken

    @property
    def is_liable(self) -> bool:
        """Whether room is or was reserved for the first job, so that room may be reserved for it again at once."""
        record = self.first_overtaken
        return record is not None and record.kept is not None

    @property
    def is_claimed(self) -> bool:
        """Whether no job may pass the first job and take what the first job needs: the first job has an open claim, or
        is late (`queues.picking.open_claims`)."""
        record = self.overtaken
        return record is not None and (record.claimed or record.late) and self.first_overtaken is record

    @property
    def is_late(self) -> bool:
        """Whether the first job is late: it has waited for as long as other jobs of its queue may pass it whatever they
        take."""
        record = self.overtaken
        return record is not None and record.late and self.first_overtaken is record

    @property
    def collects(self) -> bool:
        """Whether the queue's cohort collects what the first job asks for (`queues.picking.collected_room`)."""
        record = self.overtaken
        return record is not None and record.collected_until > 0 and self.first_overtaken is record

    @property
    def may_be_kept_room(self) -> bool:
        """Whether room may still be reserved for the job for which room is or was reserved. Valid while no other job is
        picked.

        Room may be reserved if this job is still first and has the same demand, and quota, cohort and the queue's own
        usage allow the job. Room may also be reserved while none of the queue's jobs is known.
        """
        record, first = self.overtaken, self.first
        if record is None or record.kept is None:
            return False
        if first is None:
            return self.unread > 0 and not self.remaining
        waits = first.waiting.entry.key == record.key and first.demand == record.kept
        return waits and (self.contends_with_first or not self.spec.open)

    def impatient_since(self, now: float, patience: float) -> float | None:
        """Return when the first job was first overtaken, once its patience, in seconds, has ended; else None.

        The patience does not begin anew once room is reserved for the job: the running jobs only get older from then
        on. The result is also None while the job waits for something other than the pool.
        """
        record = self.first_overtaken
        if record is None or not self.reservable:
            return None
        is_late = record.times > 0 and now - record.since >= patience
        return record.since if is_late or record.impatient or record.kept is not None else None

    @property
    def is_partly_read(self) -> bool:
        """Whether entries wait behind the known ones. If no known entry can be picked, one of the entries behind them
        might be.
        """
        return self.unread > 0 and self.spec.open

    @property
    def is_low(self) -> bool:
        """Whether it is time to read more entries: half of the entries that were read are picked, or none can be
        picked.
        """
        if not self.unread:
            return False
        if self.remaining == self._total:
            return self.first is None
        return not self.eligible or 2 * self.remaining <= self._total


def shape(demand: Amounts) -> Shape:
    """Return a demand as a hashable value."""
    return frozenset(demand.items())


Allows = Callable[[QueueState, Amounts], bool]
"""Whether quota and cohort allow a queue to use a further demand."""


def with_needed(demand: Amounts, needed: Amounts) -> Amounts:
    """Return a demand, increased by what another demand needs of the same resources."""
    return {name: amount + (needed.get(name, 0) if amount > 0 else 0) for name, amount in demand.items()}


def paid_demand(job: Candidate) -> Amounts:
    """Return what a queue pays for. An entry without a demand pays for workers that the job already has."""
    return job.demand or job.waiting.idle_demand
