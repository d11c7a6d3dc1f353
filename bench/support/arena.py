"""Queues and jobs under a virtual clock: the coordinator's picker, with plain lists in place of the store.

One rule: pure. The result depends only on the jobs and times that a caller passes; nothing is read or written.
"""

import math
from abc import ABC, abstractmethod
from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from coordinator.cache import noted_jobs
from crds.keys import JobKey
from crds.resources import amounts
from crds.resources.amounts import NOTHING, Amounts, increase
from queues import order
from queues.picking import kept_room
from queues.picking.picker import Picker
from queues.placement.places import Places
from queues.rules import PickRules
from queues.values import Account, Clock, Entry, OvertakenJob, Pick, QueueSnapshot, QueueSpec, Snapshot, WaitingEntry

GPU = "nvidia.com/gpu"
START = 1_700_000_000.0
"""When a simulation begins, in seconds since 1970."""
Rank = tuple[float, str]


def entry(queue: str, number: int, submitted: float, demand: Amounts, name: str = "", priority: int = 0) -> Entry:
    """Return a waiting job; its demand names everything but the job itself."""
    key = JobKey(queue, name or f"job-{number:07}", f"uid-{number}")
    return Entry(key=key, queue=queue, submitted=submitted, priority=priority, demand={amounts.JOBS: 1, **demand})


@dataclass(slots=True)
class Line:
    """A queue: its waiting jobs in order, and the amounts that it uses."""

    spec: QueueSpec
    ranks: list[Rank] = field(default_factory=list)
    waiting: list[WaitingEntry] = field(default_factory=list)
    used: dict[str, int] = field(default_factory=dict)

    def put(self, entry: Entry) -> None:
        """Add a waiting job."""
        rank = order.place(entry, self.spec.aging_seconds)
        index = bisect_left(self.ranks, rank)
        self.ranks.insert(index, rank)
        self.waiting.insert(index, WaitingEntry(entry, 1))

    def drop(self, entry: Entry) -> None:
        """Remove a waiting job."""
        index = bisect_left(self.ranks, order.place(entry, self.spec.aging_seconds))
        del self.ranks[index], self.waiting[index]


class Arena(ABC):
    """Queues that compete for a pool. A subclass decides which job is admitted next."""

    def __init__(self, specs: Iterable[QueueSpec], pool: Amounts | None) -> None:
        """Create queues without jobs, and an unused pool (None: unlimited)."""
        self.lines = {spec.name: Line(spec) for spec in specs}
        self.pool = pool
        self.used: dict[str, int] = {}
        self._changed: set[str] = set()

    def put(self, entry: Entry) -> None:
        """Add a job that arrives."""
        self.lines[entry.queue].put(entry)
        self._changed.add(entry.queue)

    def withdraw(self, entry: Entry) -> None:
        """Remove a job that has not run."""
        self.lines[entry.queue].drop(entry)
        self._changed.add(entry.queue)

    def release(self, entry: Entry) -> None:
        """Free the amounts of a job that has ended."""
        refund = amounts.scale(entry.demand, -1)
        increase(self.used, refund)
        increase(self.lines[entry.queue].used, refund)
        self._changed.add(entry.queue)

    def admit(self, now: float, limit: int) -> Sequence[Entry]:
        """Admit up to `limit` jobs and return them in order. The result is empty only if no job can be admitted."""
        entries = self.choose(now, limit)
        for entry in entries:
            line = self.lines[entry.queue]
            line.drop(entry)
            increase(line.used, entry.demand)
            increase(self.used, entry.demand)
        return entries

    def looks_again(self, _now: float) -> float | None:
        """Return when the jobs to admit may be others though none arrives or ends; None: never."""
        return None

    @abstractmethod
    def choose(self, now: float, limit: int, /) -> Sequence[Entry]:
        """Return the jobs to admit next, without a change."""


class Production(Arena):
    """An arena in which the coordinator's own picker decides. The picker is updated with differences, as from a
    store."""

    heads = 8
    """How many of the first waiting jobs of a queue the picker knows."""
    patience_seconds = 0.0
    """For how long it stands for how long jobs may be passed."""

    def __init__(
        self, specs: Iterable[QueueSpec], pool: Amounts | None, rules: PickRules, places: Places | None = None
    ) -> None:
        """See Arena. `places` has the nodes of which the pool is; None: only sums of amounts count."""
        super().__init__(specs, pool)
        self._accounts: dict[str, Account] = {}
        self._overtaken: dict[str, OvertakenJob | None] = {}
        self._clock = Clock()
        self._rules = rules
        self._aged = -math.inf
        self.admitted: dict[JobKey, tuple[str, float]] = {}
        """The queues of the jobs that hold room, and when they were admitted."""
        self._ended: list[tuple[float, Amounts]] = []
        """When the jobs were admitted that have ended since the last picks, and what they asked for."""
        self.holds: deque[tuple[float, int]] = deque(maxlen=noted_jobs.MOST_ENDED)
        """For how long the jobs that ended last held their room, and what they cost."""
        self.picker = Picker(self._show(self.lines, whole=True), rules, places=places)

    def reweigh(self, queue: str, weight: int) -> None:
        """Change a queue's weight, as an administrator does."""
        self.lines[queue].spec = replace(self.lines[queue].spec, weight=weight)
        self.picker.update(self._show(self.lines, whole=True))

    def choose(self, now: float, limit: int, /) -> Sequence[Entry]:
        """See Arena."""
        return [pick.waiting.entry for pick in self.picks(now, limit)]

    def release(self, entry: Entry) -> None:
        """See Arena."""
        super().release(entry)
        admitted = self.admitted.pop(entry.key, None)
        if admitted is not None:
            self._ended.append((admitted[1], entry.demand))

    def looks_again(self, now: float) -> float | None:
        """See Arena: while room is kept, its queue pays for it; and room is collected for a time."""
        collects = any(record is not None and record.collected_until for record in self._overtaken.values())
        return now + kept_room.MOST_SECONDS if self.picker.reservation.liable or collects else None

    def picks(self, now: float, limit: int) -> Sequence[Pick]:
        """Return the picks to make next. What they change beside their jobs is kept, as if the picks stood."""
        queues = self._changed.union(self.picker.needs_entries)
        self._changed = set()
        self.picker.update(self._show(queues, whole=False))
        self.holds += [(now - since, self.picker.pool.prices.of(demand)) for since, demand in self._ended]
        self._ended.clear()
        if any(self._overtaken.values()) and now - self._aged >= self.patience_seconds:
            self._aged = now
            ages: dict[str, list[float]] = {}
            for queue, since in self.admitted.values():
                ages.setdefault(queue, []).append(now - since)
            self.picker.patience = self._rules.patience(ages, self.holds)
        batch = self.picker.picks(now, limit)
        for pick in batch.picks:
            self._keep(pick.clock, pick.accounts, pick.overtaken)
            self.admitted.setdefault(pick.waiting.entry.key, (pick.waiting.entry.queue, now))
        if batch.settlement is not None:
            self._keep(*batch.settlement)
        return batch.picks

    def _keep(
        self, clock: Clock | None, accounts: Mapping[str, Account], overtaken: Mapping[str, OvertakenJob | None]
    ) -> None:
        """Keep the accounts that a store would write."""
        self._accounts.update(accounts)
        self._overtaken.update(overtaken)
        self._clock = clock or self._clock

    def _show(self, names: Iterable[str], *, whole: bool) -> Snapshot:
        return Snapshot(
            epoch=1,
            revision=1,
            pool=self.pool,
            pool_usage=self.used,
            clock=self._clock,
            queues=tuple(self._view(self.lines[name]) for name in sorted(names)),
            whole=whole,
        )

    def _view(self, line: Line) -> QueueSnapshot:
        name = line.spec.name
        return QueueSnapshot(
            spec=line.spec,
            usage=line.used,
            waiting=len(line.waiting),
            heads=tuple(line.waiting[: self.heads]),
            account=self._accounts.get(name, Account()),
            overtaken=self._overtaken.get(name),
        )


class Fifo(Arena):
    """An arena with one order for all jobs: the first to arrive is admitted first, and no job passes another. There are
    no weights and no quotas."""

    def choose(self, _now: float, _limit: int, /) -> Sequence[Entry]:
        """See Arena."""
        heads = [(line.ranks[0], name) for name, line in self.lines.items() if line.ranks]
        if not heads:
            return []
        first = self.lines[min(heads)[1]].waiting[0].entry
        return [first] if amounts.fits(first.demand, self.used, self.pool or NOTHING) else []


class WeightedRoundRobin(Arena):
    """An arena in which each queue in turn admits a number of jobs equal to its weight, as long as its first job has
    room. The arena counts jobs, not their demand, and reserves no room for a job that does not fit.
    """

    def __init__(self, specs: Iterable[QueueSpec], pool: Amounts | None) -> None:
        """See Arena."""
        super().__init__(specs, pool)
        self._round = [name for name, line in self.lines.items() for _ in range(line.spec.weight)]
        self._position = 0

    def choose(self, _now: float, _limit: int, /) -> Sequence[Entry]:
        """See Arena."""
        for step in range(len(self._round)):
            position = (self._position + step) % len(self._round)
            line = self.lines[self._round[position]]
            if line.waiting and self._fits(line):
                self._position = position + 1
                return [line.waiting[0].entry]
        return []

    def _fits(self, line: Line) -> bool:
        demand = line.waiting[0].entry.demand
        fits_quota = amounts.fits(demand, line.used, line.spec.quota)
        return fits_quota and amounts.fits(demand, self.used, self.pool or NOTHING)
