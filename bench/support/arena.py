"""Queues and jobs under a virtual clock: the production race, with plain lists in the store's place.

One rule: pure. What happens follows from the jobs and the times that are handed in; nothing is read or written.
"""

from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from crds.resources import amounts
from crds.resources.amounts import NOTHING, Amounts
from queues import order
from queues.picking.forecast import Forecast
from queues.picking.queue_state import charge
from queues.rules import Rules
from queues.values import Account, Clock, Entry, Overtaken, QueueSpec, QueueView, Snapshot, Waiting

_HEADS = 8
Rank = tuple[float, str]


@dataclass(slots=True)
class Line:
    """One queue: who waits, in order, and what it uses."""

    spec: QueueSpec
    ranks: list[Rank] = field(default_factory=list)
    waiting: list[Waiting] = field(default_factory=list)
    used: dict[str, int] = field(default_factory=dict)

    def put(self, entry: Entry) -> None:
        """Let a job wait."""
        rank = order.place(entry, self.spec.aging_seconds)
        at = bisect_left(self.ranks, rank)
        self.ranks.insert(at, rank)
        self.waiting.insert(at, Waiting(entry, 1))

    def drop(self, entry: Entry) -> None:
        """It waits no longer."""
        at = bisect_left(self.ranks, order.place(entry, self.spec.aging_seconds))
        del self.ranks[at], self.waiting[at]


class Arena(ABC):
    """Queues that compete for a pool; who goes next is for a subclass to say."""

    def __init__(self, specs: Iterable[QueueSpec], pool: Amounts | None) -> None:
        """Queues without jobs, and a pool (None: nothing is scarce) of which nothing is used."""
        self.lines = {spec.name: Line(spec) for spec in specs}
        self.pool = pool
        self.used: dict[str, int] = {}
        self._changed: set[str] = set()

    def put(self, entry: Entry) -> None:
        """A job arrives."""
        self.lines[entry.queue].put(entry)
        self._changed.add(entry.queue)

    def withdraw(self, entry: Entry) -> None:
        """A job leaves without having run."""
        self.lines[entry.queue].drop(entry)
        self._changed.add(entry.queue)

    def release(self, entry: Entry) -> None:
        """A job that ran has ended."""
        given_back = amounts.scale(entry.demand, -1)
        charge(self.used, given_back)
        charge(self.lines[entry.queue].used, given_back)
        self._changed.add(entry.queue)

    def admit(self, now: float, limit: int) -> Sequence[Entry]:
        """At most so many jobs that go now, in order; none only if none can."""
        chosen = self.choose(now, limit)
        for entry in chosen:
            line = self.lines[entry.queue]
            line.drop(entry)
            charge(line.used, entry.demand)
            charge(self.used, entry.demand)
        return chosen

    @abstractmethod
    def choose(self, now: float, limit: int, /) -> Sequence[Entry]:
        """Who goes next; nothing changes."""


class Production(Arena):
    """Decided by the coordinator's own picker, which is updated with differences as a store shows them."""

    def __init__(self, specs: Iterable[QueueSpec], pool: Amounts | None, rules: Rules) -> None:
        """See Arena."""
        super().__init__(specs, pool)
        self._accounts: dict[str, Account] = {}
        self._overtaken: dict[str, Overtaken | None] = {}
        self._clock = Clock()
        self._forecast = Forecast(self._show(self.lines, whole=True), rules)

    def reweigh(self, queue: str, weight: int) -> None:
        """An admin changes a queue's weight."""
        self.lines[queue].spec = replace(self.lines[queue].spec, weight=weight)
        self._forecast.update(self._show(self.lines, whole=True))

    def choose(self, now: float, limit: int, /) -> Sequence[Entry]:
        """See Arena."""
        shown = self._changed.union(self._forecast.needs_entries)
        self._changed = set()
        self._forecast.update(self._show(shown, whole=False))
        batch = self._forecast.picks(now, limit)
        for pick in batch.picks:
            self._keep(pick.clock, pick.accounts, pick.overtaken)
        if batch.settlement is not None:
            self._keep(*batch.settlement)
        return [pick.waiting.entry for pick in batch.picks]

    def _keep(
        self, clock: Clock | None, accounts: Mapping[str, Account], overtaken: Mapping[str, Overtaken | None]
    ) -> None:
        """What a store would write."""
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

    def _view(self, line: Line) -> QueueView:
        name = line.spec.name
        return QueueView(
            spec=line.spec,
            usage=line.used,
            waiting=len(line.waiting),
            heads=tuple(line.waiting[:_HEADS]),
            account=self._accounts.get(name, Account()),
            overtaken=self._overtaken.get(name),
        )


class Fifo(Arena):
    """A single line: who came first goes first, and nothing passes it. Knows no weights and no quotas."""

    def choose(self, _now: float, _limit: int, /) -> Sequence[Entry]:
        """See Arena."""
        heads = [(line.ranks[0], name) for name, line in self.lines.items() if line.ranks]
        if not heads:
            return []
        first = self.lines[min(heads)[1]].waiting[0].entry
        return [first] if amounts.fits(first.demand, self.used, self.pool or NOTHING) else []


class WeightedRoundRobin(Arena):
    """Each queue in turn as many jobs as its weight says, as long as its first job finds room. Counts jobs, not what
    they ask for, and keeps no room for anybody."""

    def __init__(self, specs: Iterable[QueueSpec], pool: Amounts | None) -> None:
        """See Arena."""
        super().__init__(specs, pool)
        self._round = [name for name, line in self.lines.items() for _ in range(line.spec.weight)]
        self._at = 0

    def choose(self, _now: float, _limit: int, /) -> Sequence[Entry]:
        """See Arena."""
        for step in range(len(self._round)):
            at = (self._at + step) % len(self._round)
            line = self.lines[self._round[at]]
            if line.waiting and self._fits(line):
                self._at = at + 1
                return [line.waiting[0].entry]
        return []

    def _fits(self, line: Line) -> bool:
        demand = line.waiting[0].entry.demand
        within = amounts.fits(demand, line.used, line.spec.quota)
        return within and amounts.fits(demand, self.used, self.pool or NOTHING)
