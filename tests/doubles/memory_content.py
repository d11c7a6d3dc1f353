"""The content of the queue store in memory.

One rule: this module has values and what follows from them. `tests.doubles.memory_store` decides how the values change.
"""

import math
import threading
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from crds.keys import JobKey
from crds.resources import amounts
from crds.resources.amounts import NOTHING, Amounts
from queues import limits, order
from queues.installation import Installation
from queues.values import (
    Account,
    Batch,
    Clock,
    Entry,
    NextEntries,
    OvertakenJob,
    QueueSnapshot,
    QueueSpec,
    Reservation,
    WaitingEntry,
)


class Last(NamedTuple):
    """The last commit."""

    name: str = ""
    whole: bool = False
    """Whether all picks of the commit were accepted."""
    change: int = 0


@dataclass(slots=True)
class Content:
    """The data that Redis would hold. Several stores may share it, as several processes share a Redis."""

    lock: threading.RLock = field(default_factory=threading.RLock)
    incarnation: str = "first"
    seconds_since_move: float = math.inf
    problem: str = ""
    """Why a leader must not use the server."""
    owner: Installation | None = None
    epoch: int = 0
    rebuilding: int = 0
    """The epoch under which a rebuild has begun that has not ended."""
    revision: int = 0
    version: int = 0
    specs: dict[str, QueueSpec] = field(default_factory=dict)
    pool: Amounts | None = None
    clock: Clock = field(default_factory=Clock)
    accounts: dict[str, Account] = field(default_factory=dict)
    overtaken: dict[str, OvertakenJob | None] = field(default_factory=dict)
    entries: dict[JobKey, WaitingEntry] = field(default_factory=dict)
    members: dict[JobKey, str] = field(default_factory=dict)
    """Job -> the text that orders jobs of one score (`order.member`), as it was when the job was put first."""
    reservations: dict[JobKey, Reservation] = field(default_factory=dict)
    counted: frozenset[str] | None = None
    """The names of resources that the usage counts; None, before the first settings, means all resources."""
    usage: dict[str, dict[str, int]] = field(default_factory=dict)
    pool_usage: dict[str, int] = field(default_factory=dict)
    last_port: int = 0
    picked: int = 0
    change: int = 0
    changed: dict[str, int] = field(default_factory=dict)
    """Queue -> its last change."""
    settled: int = 0
    """The last change that a difference cannot show."""
    last: Last = field(default_factory=Last)

    def charge(self, reservation: Reservation, times: int) -> None:
        """Add the counted part of a reservation's charge to the sums of its queue and of the pool, multiplied by
        `times`.
        """
        charge = amounts.select(reservation.charge, self.counted)
        for sums in (self.usage.setdefault(reservation.queue, {}), self.pool_usage):
            amounts.increase(sums, charge, times)
            for name in charge:
                if not sums[name]:
                    del sums[name]

    def count(self, names: frozenset[str]) -> None:
        """Count these names from now on, including for existing reservations."""
        self.counted, self.usage, self.pool_usage = names, {}, {}
        for reservation in self.reservations.values():
            self.charge(reservation, 1)

    def places(self) -> dict[str, dict[JobKey, float]]:
        """Return the order of every queue, including queues that are not configured."""
        places: dict[str, dict[JobKey, float]] = {}
        for key, waiting in self.entries.items():
            spec = self.specs.get(waiting.entry.queue, QueueSpec(name=waiting.entry.queue))
            places.setdefault(waiting.entry.queue, {})[key] = order.score(waiting.entry, spec.aging_seconds)
        return places

    def lines(self, queues: Collection[str]) -> dict[str, list[WaitingEntry]]:
        """Return the waiting entries of these configured queues, in order."""
        lines: dict[str, list[WaitingEntry]] = {name: [] for name in queues}
        for waiting in self.entries.values():
            if waiting.entry.queue in lines:
                lines[waiting.entry.queue].append(waiting)
        for name, line in lines.items():
            aging = self.specs[name].aging_seconds
            line.sort(key=lambda waiting: self.place(waiting.entry, aging))
        return lines

    def place(self, entry: Entry, aging_seconds: float) -> tuple[float, str]:
        """Return the sort key of a waiting job (`order.place`)."""
        return order.score(entry, aging_seconds), self.members[entry.key]

    def view(self, name: str, line: list[WaitingEntry], heads: int, after: int) -> QueueSnapshot:
        """Return the view of a queue with the waiting entries in `line`."""
        return QueueSnapshot(
            spec=self.specs[name],
            usage=dict(self.usage.get(name, {})),
            waiting=len(line),
            heads=tuple(line[after : after + heads]),
            account=self.accounts.get(name, Account()),
            overtaken=self.overtaken.get(name),
            after=after,
        )

    def accounts_of_removed_queues(self) -> dict[str, Account]:
        """Return the accounts of queues that are not configured any more."""
        return {name: account for name, account in self.accounts.items() if name not in self.specs}

    def next_entries(self, batch: Batch) -> tuple[NextEntries, ...]:
        """Return the next entries of the queues that a batch names."""
        after = batch.needs_entries
        return tuple(
            NextEntries(name, after[name], len(line), tuple(line[after[name] : after[name] + batch.heads]))
            for name, line in self.lines(after).items()
        )


def find_exceeded(
    demand: Amounts, spec: QueueSpec, specs: Iterable[QueueSpec], usage: Mapping[str, Amounts]
) -> Literal["", "quota", "cohort"]:
    """Return which limit has no room for a demand in a queue, given all queues and their usage. The result is "" if
    every limit has room.

    Only the resources in the queue's quota count. Outside a cohort the quota is the limit. In a cohort the queue may
    use quota and borrowing together; a resource that borrowing leaves out has no limit there. The members that limit a
    resource may together use the sum of their quotas of it.
    """
    used = usage.get(spec.name, NOTHING)
    if not amounts.fits(demand, used, limits.queue_limit(spec)):
        return "quota"
    if not spec.cohort:
        return ""
    members = [member for member in specs if member.cohort == spec.cohort]
    quota, shared = limits.cohort_totals(members)[spec.cohort], NOTHING
    for member in members:
        member_usage = usage.get(member.name, NOTHING)
        shared = amounts.add(shared, {name: member_usage.get(name, 0) for name in member.quota})
    return "" if amounts.fits(demand, shared, {name: quota[name] for name in spec.quota}) else "cohort"
