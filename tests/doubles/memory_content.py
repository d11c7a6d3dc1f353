"""What the queue store in memory holds, and what is seen of it.

One rule: values only; `tests.doubles.memory_store` says what may happen to them.
"""

import threading
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import NamedTuple

from crds.keys import JobKey
from crds.resources import amounts
from crds.resources.amounts import Amounts
from queues import order
from queues.values import (
    Account,
    Batch,
    Behind,
    Clock,
    Entry,
    Overtaken,
    QueueSpec,
    QueueView,
    Reservation,
    Waiting,
)


class Last(NamedTuple):
    """The last commit."""

    name: str = ""
    whole: bool = False
    """Whether all of it stands."""
    change: int = 0


@dataclass(slots=True)
class Content:
    """What a Redis would hold; several stores may stand on it."""

    lock: threading.RLock = field(default_factory=threading.RLock)
    incarnation: str = "first"
    epoch: int = 0
    revision: int = 0
    version: int = 0
    specs: dict[str, QueueSpec] = field(default_factory=dict)
    pool: Amounts | None = None
    clock: Clock = field(default_factory=Clock)
    accounts: dict[str, Account] = field(default_factory=dict)
    overtaken: dict[str, Overtaken | None] = field(default_factory=dict)
    entries: dict[JobKey, Waiting] = field(default_factory=dict)
    members: dict[JobKey, str] = field(default_factory=dict)
    """What decides between waiting jobs of one score (`order.member`), as it was when they were put first."""
    reservations: dict[JobKey, Reservation] = field(default_factory=dict)
    counted: frozenset[str] | None = None
    """The names of resources that the usage counts; None, before settings are known: all."""
    usage: dict[str, dict[str, int]] = field(default_factory=dict)
    pool_usage: dict[str, int] = field(default_factory=dict)
    last_port: int = 0
    picked: int = 0
    change: int = 0
    changed: dict[str, int] = field(default_factory=dict)
    """Queue -> its last change."""
    settled: int = 0
    """The last change that a difference cannot tell."""
    last: Last = field(default_factory=Last)

    def charge(self, held: Reservation, times: int) -> None:
        """Add what counts of a reservation's charge, so many times, to the sums of its queue and of the pool."""
        charge = amounts.only(held.charge, self.counted)
        for sums in (self.usage.setdefault(held.queue, {}), self.pool_usage):
            amounts.increase(sums, charge, times)
            for name in charge:
                if not sums[name]:
                    del sums[name]

    def count(self, names: frozenset[str]) -> None:
        """Count these names from now on."""
        self.counted, self.usage, self.pool_usage = names, {}, {}
        for held in self.reservations.values():
            self.charge(held, 1)

    def places(self) -> dict[str, dict[JobKey, float]]:
        """Every queue's order, also of queues that are not configured."""
        places: dict[str, dict[JobKey, float]] = {}
        for key, waiting in self.entries.items():
            spec = self.specs.get(waiting.entry.queue, QueueSpec(name=waiting.entry.queue))
            places.setdefault(waiting.entry.queue, {})[key] = order.score(waiting.entry, spec.aging_seconds)
        return places

    def lines(self, shown: Collection[str]) -> dict[str, list[Waiting]]:
        """The waiting entries of some configured queues, in order."""
        lines: dict[str, list[Waiting]] = {name: [] for name in shown}
        for waiting in self.entries.values():
            if waiting.entry.queue in lines:
                lines[waiting.entry.queue].append(waiting)
        for name, line in lines.items():
            aging = self.specs[name].aging_seconds
            line.sort(key=lambda waiting: self.place(waiting.entry, aging))
        return lines

    def place(self, entry: Entry, aging_seconds: float) -> tuple[float, str]:
        """What a waiting job is sorted by (`order.place`)."""
        return order.score(entry, aging_seconds), self.members[entry.key]

    def view(self, name: str, line: list[Waiting], heads: int, after: int) -> QueueView:
        """A queue of which the entries are given."""
        return QueueView(
            spec=self.specs[name],
            usage=dict(self.usage.get(name, {})),
            waiting=len(line),
            heads=tuple(line[after : after + heads]),
            account=self.accounts.get(name, Account()),
            overtaken=self.overtaken.get(name),
            after=after,
        )

    def departed(self) -> dict[str, Account]:
        """The accounts of queues that are not configured any more."""
        return {name: account for name, account in self.accounts.items() if name not in self.specs}

    def behind(self, batch: Batch) -> tuple[Behind, ...]:
        """What a batch that stands is hungry for."""
        after = batch.hungry
        return tuple(
            Behind(name, after[name], len(line), tuple(line[after[name] : after[name] + batch.heads]))
            for name, line in self.lines(after).items()
        )
