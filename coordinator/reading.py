"""Where answers about the queues come from: the store itself, for the coordinator and for admins of Redis.

One rule: only reads, and never much: one snapshot serves everybody who asks within a second.
"""

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from coordinator import board
from coordinator.board import Document
from coordinator.errors import CoordinatorError
from coordinator.settings import Settings
from crds.keys import JobKey
from queues import explain, rules
from queues.choose import choose
from queues.race import Race
from queues.rules import Rules
from queues.store import QueueStore
from queues.values import Place, Snapshot
from queues.vitals import Vitals

HEADS = 8
"""Jobs of each queue that an answer about queues or one job looks at."""
FORETOLD = 100
"""Picks that an answer about one job looks ahead."""
MOST_FORETOLD = 500
FRESH_SECONDS = 1.0
UNKNOWN = "there is no "
"""How every answer about what is not there begins."""


class NotKnown(CoordinatorError):
    """There is no queue or job of that name in the queues."""


class Reading(Protocol):
    """Answers, as JSON documents. QueueError, ClusterError or CoordinatorError if there are none."""

    def queues(self) -> list[Document]:
        """Every queue, as a TenantQueue whose status says how it does now."""

    def queue(self, name: str) -> Document:
        """One of them. NotKnown."""

    def next(self, count: int, *, roomy: bool = False) -> Document:
        """The next picks if nothing changed; `roomy`: as if the pool had room for all."""

    def job(self, key: JobKey) -> Document:
        """Where a job stands and why it waits."""

    def status(self) -> Document:
        """How dispatch and queues do, in numbers."""


def no_policies() -> Mapping[str, str]:
    """Where nobody knows more of a queue than whether it is open."""
    return {}


@dataclass(slots=True)
class StoreReading:
    """Reading from the store itself; safe to share between threads."""

    store: QueueStore
    vitals: Callable[[], Vitals]
    rules: Rules
    policies: Callable[[], Mapping[str, str]] = no_policies
    clock: Callable[[], float] = time.time
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _kept: Snapshot | None = None
    _kept_heads: int = 0
    _kept_until: float = 0.0

    def queues(self) -> list[Document]:
        """See Reading."""
        return board.queues(self._snapshot(HEADS), self.clock(), self.rules.cost, self.policies())

    def queue(self, name: str) -> Document:
        """See Reading."""
        found = next((each for each in self.queues() if each["metadata"]["name"] == name), None)
        if found is None:
            raise NotKnown(f"{UNKNOWN}queue {name} in the queues")
        return found

    def next(self, count: int, *, roomy: bool = False) -> Document:
        """See Reading."""
        count = max(1, min(count, MOST_FORETOLD))
        snapshot, now = self._snapshot(count), self.clock()
        seen = board.roomy(snapshot) if roomy else snapshot
        picks = choose(seen, now, count, self.rules).picks
        return {"items": board.upcoming(picks, now), "pool": board.room(snapshot), "waiting": board.total(snapshot)}

    def job(self, key: JobKey) -> Document:
        """See Reading."""
        place = self.store.place(key)
        if place is not None:
            return self._waiting(place)
        held = self.store.reservations([key]).get(key)
        return board.elsewhere(key) if held is None else board.admitted(held)

    def _waiting(self, place: Place) -> Document:
        snapshot, now = self._snapshot(HEADS), self.clock()
        race = Race(snapshot, self.rules)
        told = explain.why(race, place, now)
        turn = _turn(race, place, now)
        order = turn or _turn(Race(board.roomy(snapshot), self.rules), place, now)
        return board.waiting(place, turn, order) | {
            "code": told.code,
            "message": told.sentence,
            "numbers": told.numbers,
        }

    def status(self) -> Document:
        """See Reading."""
        return board.vitals(self.vitals())

    def _snapshot(self, heads: int) -> Snapshot:
        with self._lock:
            now = self.clock()
            fresh = now <= self._kept_until <= now + FRESH_SECONDS  # somebody may have set the clock back
            if self._kept is None or not fresh or self._kept_heads < heads:
                self._kept = self.store.snapshot(heads)
                self._kept_heads, self._kept_until = heads, self.clock() + FRESH_SECONDS
            return self._kept


def _turn(race: Race, place: Place, now: float) -> int | None:
    """Which of the next picks the job is, if it is one of them."""
    keys = [pick.waiting.entry.key for pick in race.picks(now, FORETOLD).picks]
    return keys.index(place.entry.key) + 1 if place.entry.key in keys else None


def rules_of(settings: Settings) -> Rules:
    """How the coordinator of these settings picks."""
    return rules.from_settings(settings.cost, settings.picker, settings.queue_bypasses)


def document(value: Any) -> Document:
    """What somebody else calls an answer. CoordinatorError if it is none."""
    if not isinstance(value, dict):
        raise CoordinatorError("the coordinator's answer makes no sense: is it a torchq coordinator?")
    return value
