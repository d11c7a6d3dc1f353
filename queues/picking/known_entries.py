"""The entries of one queue that the picker has read from the store.

One rule: a job that is larger than its queue, its cohort or the pool can ever give is skipped. It delays no other job.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from crds.resources import amounts
from crds.resources.amounts import NOTHING, Amounts
from queues.values import NextEntries, QueueSnapshot, WaitingEntry

Shape = frozenset[tuple[str, int]]
"""A demand as a hashable value. Equal demands have equal shapes."""


@dataclass(slots=True)
class Candidate:
    """A known job that its queue, its cohort and the pool could run one day."""

    waiting: WaitingEntry
    demand: Amounts
    position: int
    """The index among the known entries. The first runnable job of a queue has the lowest."""
    units: int = 0
    """The number of further workers that `demand` covers (`Entry.most`)."""


class KnownEntries:
    """The known entries of one queue, and which of them are picked."""

    __slots__ = (
        "_next",
        "_picked",
        "_positions",
        "_total",
        "_unrunnable",
        "bid_demand",
        "ceiling",
        "entries",
        "first",
        "remaining",
        "requested",
        "uniform",
        "unread",
    )

    def __init__(self, snapshot: QueueSnapshot, ceiling: Amounts) -> None:
        """Begin with the entries in a snapshot of the queue. `ceiling` is the most that any job of the queue can ever
        have."""
        self.bid_demand: Amounts | None = None
        """The demand of the first job, if the queue bids for this job alone (`queues.picking.fair_share`)."""
        self.requested: int | None = None
        """How many known entries remained when more were requested from the store; None: no request is under way."""
        self.ceiling = ceiling
        self._set(snapshot.heads, snapshot.waiting - len(snapshot.heads))

    def _set(self, entries: Sequence[WaitingEntry], unread: int) -> None:
        self.entries = entries
        self.unread = unread
        """How many entries wait behind the known ones."""
        self.remaining = self._total = len(entries)
        """How many of the known entries are not picked."""
        self.uniform = _have_equal_demands(entries)
        """Whether all known entries have the same demand."""
        self._next = 0
        """The position from which the first runnable job is searched."""
        self._unrunnable: list[WaitingEntry] = []
        """The known entries before the first runnable job."""
        self._picked: set[int] = set()
        """The positions of picked entries behind the first runnable job."""
        self._positions: dict[Shape, deque[int]] | None = None
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

    def distinct(self) -> Iterator[Candidate]:
        """Yield the first runnable job of each distinct demand, in order."""
        if self._positions is None:
            self._positions = self._group_by_shape()
        for positions in self._positions.values():
            while positions and (positions[0] < self._next or positions[0] in self._picked):
                positions.popleft()
        for position in sorted(positions[0] for positions in self._positions.values() if positions):
            yield Candidate(self.entries[position], self.entries[position].demand, position)

    def runnable(self) -> Iterator[Candidate]:
        """Yield the runnable jobs that are known and not picked, in order."""
        for position in range(self._next, len(self.entries)):
            entry = self.entries[position]
            if position not in self._picked and amounts.fits(entry.demand, NOTHING, self.ceiling):
                yield Candidate(entry, entry.demand, position)

    @property
    def is_exhausted(self) -> bool:
        """Whether the queue's next job is unread, because all known runnable entries are picked."""
        return self.unread > 0 and (not self.remaining or self.remaining < self._total) and self.first is None

    @property
    def has_only_unrunnable(self) -> bool:
        """Whether none of the known entries can ever run, though more entries wait behind them."""
        return self.unread > 0 and self.first is None and 0 < self.remaining == self._total

    def _find_first(self) -> Candidate | None:
        entries, position = self.entries, self._next
        while position < len(entries):
            waiting = entries[position]
            if position not in self._picked:
                demand = waiting.demand
                if demand is self.bid_demand or amounts.fits(demand, NOTHING, self.ceiling):
                    self._next = position
                    return Candidate(waiting, demand, position)
                self._unrunnable.append(waiting)
            position += 1
        self._next = position
        return None

    def _group_by_shape(self) -> dict[Shape, deque[int]]:
        positions: dict[Shape, deque[int]] = {}
        for position in range(self._next, len(self.entries)):
            demand = self.entries[position].demand
            if position not in self._picked and amounts.fits(demand, NOTHING, self.ceiling):
                positions.setdefault(shape(demand), deque()).append(position)
        return positions


def _have_equal_demands(entries: Sequence[WaitingEntry]) -> bool:
    """Return whether all entries have the same demand. Most equal demands are one object."""
    demand = entries[0].demand if entries else NOTHING
    return not [entry for entry in entries if entry.demand is not demand and entry.demand != demand]


def shape(demand: Amounts) -> Shape:
    """Return a demand as a hashable value."""
    return frozenset(demand.items())
