"""Where answers about the queues come from: the store itself, for the coordinator and for admins of Redis.

One rule: only reads; what is foretold is made by the picker itself, and changes nothing.
"""

import time
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from coordinator.errors import CoordinatorError
from coordinator.query import documents
from coordinator.query.documents import Document
from crds.keys import JobKey
from queues.picking import forecast, read_depth
from queues.picking.forecast import Forecast
from queues.picking.snapshot_cache import Following
from queues.rules import Rules
from queues.storage.stats import Vitals
from queues.store import QueueReader
from queues.values import Entry, Place

IDENTITY = "Torchq-Identity"
"""The header of every answer that names the coordinator process that made it."""
FORETOLD = 100
"""Picks that an answer about one job looks ahead."""
MOST_FORETOLD = 500
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


class StoreReading:
    """Reading from the store itself; safe to share between threads."""

    def __init__(
        self,
        store: QueueReader,
        vitals: Callable[[], Vitals],
        rules: Rules,
        policies: Callable[[], Mapping[str, str]] = no_policies,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`policies` names the stop policies of queues, where they are known better than by open and shut."""
        self._store = store
        self._vitals = vitals
        self._rules = rules
        self._policies = policies
        self._clock = clock
        self._following = Following(store, clock)

    def queues(self) -> list[Document]:
        """See Reading."""
        return documents.queues(self._following.look(), self._clock(), self._rules.cost, self._policies())

    def queue(self, name: str) -> Document:
        """See Reading."""
        found = next((each for each in self.queues() if each["metadata"]["name"] == name), None)
        if found is None:
            raise NotKnown(f"{UNKNOWN}queue {name} in the queues")
        return found

    def next(self, count: int, *, roomy: bool = False) -> Document:
        """See Reading."""
        count = max(1, min(count, MOST_FORETOLD))
        snapshot, picks = self._following.forecast(self._rules, count, roomy=roomy)
        items = documents.upcoming(picks, self._clock())
        return {"items": items, "pool": documents.room(snapshot), "waiting": documents.total(snapshot)}

    def job(self, key: JobKey) -> Document:
        """See Reading."""
        place = self._store.place(key)
        if place is not None:
            return self._waiting(place)
        held = self._store.reservations([key]).get(key)
        return documents.elsewhere(key) if held is None else documents.admitted(held)

    def _waiting(self, place: Place) -> Document:
        snapshot, now = self._following.look(read_depth.per_queue(1), [place.entry.queue]), self._clock()
        told = Forecast(snapshot, self._rules).explain(place, now)
        turn = self._turn(place)
        possible = told.code != "ExceedsQuota"
        order = turn or (self._turn(place, roomy=True) if possible else None)
        said = {"code": told.code, "message": told.sentence, "numbers": told.numbers}
        return documents.waiting(place, turn, order) | said

    def supposed(self, entry: Entry) -> Document:
        """What would become of a job that is in no order, if it took its place there now. QueueError."""
        snapshot = self._following.look(read_depth.per_queue(1), [entry.queue])
        told = forecast.suppose(snapshot, entry, self._rules, self._clock())
        fits = told.code == "Next"
        return {"fits": fits, "code": told.code, "message": told.sentence, "numbers": told.numbers}

    def _turn(self, place: Place, *, roomy: bool = False) -> int | None:
        """Which of the next picks the job is, if it is one of them."""
        picks = self._following.forecast(self._rules, FORETOLD, roomy=roomy)[1]
        keys = [pick.waiting.entry.key for pick in picks]
        return keys.index(place.entry.key) + 1 if place.entry.key in keys else None

    def status(self) -> Document:
        """See Reading."""
        return documents.vitals(self._vitals())


def document(value: Any) -> Document:
    """What somebody else calls an answer. CoordinatorError if it is none."""
    if not isinstance(value, dict):
        raise CoordinatorError("the coordinator's answer makes no sense: is it a torchq coordinator?")
    return value
