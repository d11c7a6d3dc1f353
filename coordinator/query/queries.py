"""Queries about the queues, answered from the store: for the coordinator, and for admins of Redis.

One rule: queries only read. The picker itself makes the forecasts, and they change nothing.
"""

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from coordinator.errors import CoordinatorError
from coordinator.query import documents, report_documents
from coordinator.query.documents import Document
from coordinator.reports.store import ReportReader
from crds.keys import JobKey
from crds.resources.amounts import Amounts
from queues.picking import forecast, read_depth
from queues.picking.forecast import Forecast
from queues.picking.snapshot_cache import SnapshotCache
from queues.rules import PickRules
from queues.storage.stats import QueueStats
from queues.store import QueueReader
from queues.values import Entry, QueuePosition, Snapshot

IDENTITY = "Torchq-Identity"
"""The HTTP header that names the coordinator process that made the answer."""
FORECAST_PICKS = 100
"""The number of picks that are forecast for an answer about one job."""
MOST_FORECAST_PICKS = 500
UNKNOWN_PREFIX = "there is no "
"""The beginning of every message about an object that does not exist."""


class UnknownObject(CoordinatorError):
    """The queues have no queue or job of that name."""


class Queries(Protocol):
    """Queries about the queues, answered as JSON documents. A query may raise QueueError, ClusterError or
    CoordinatorError."""

    def queues(self) -> list[Document]:
        """Return every queue as a TenantQueue whose status has the current figures."""

    def queue(self, name: str) -> Document:
        """Return one queue. Raises UnknownObject if there is none of that name."""

    def next(self, count: int, *, roomy: bool = False) -> Document:
        """Return the next picks if nothing changes; if `roomy`, in a pool with room for all jobs."""

    def places(self, queues: Collection[str]) -> list[Document]:
        """Return the places of the first waiting jobs of some queues, in the order of each queue."""

    def job(self, key: JobKey) -> Document:
        """Return the position of a job and why it waits. If it holds room and waits for more workers, `growth` is their
        position and why they wait."""

    def reports(self, key: JobKey) -> Document:
        """Return what the pods of a job have reported (`coordinator.query.report_documents`)."""

    def status(self) -> Document:
        """Return the numbers of dispatch and of the queues."""


def no_policies() -> Mapping[str, str]:
    """Return no stop policies: the store knows only whether a queue is open."""
    return {}


def no_idle_usage() -> Mapping[str, Amounts]:
    """Return no usage by idle growth: only the jobs say what it is."""
    return {}


@dataclass(slots=True)
class StoreQueries:
    """Queries that are answered from the store; safe to share between threads."""

    store: QueueReader
    stats: Callable[[], QueueStats]
    rules: PickRules
    policies: Callable[[], Mapping[str, str]] = no_policies
    """A function that returns the stop policies of queues, where they are known."""
    clock: Callable[[], float] = time.time
    idle_usage: Callable[[], Mapping[str, Amounts]] = no_idle_usage
    """A function that returns what idle growth uses of each queue, where it is known."""
    report_reader: ReportReader | None = None
    """What training code reports; None: nothing is known of it."""
    pods: Callable[[JobKey], Collection[str]] = lambda _: ()
    """A function that returns the names of the pods of a job, where they are known."""
    check_owner: Callable[[], None] = lambda: None
    """A function that raises ForeignStore if the store holds the queues of another installation."""
    _snapshots: SnapshotCache = field(init=False)

    def __post_init__(self) -> None:
        self._snapshots = SnapshotCache(self.store, self.clock)

    def queues(self) -> list[Document]:
        """See `Queries`."""
        self.check_owner()
        found = documents.queues(self._snapshots.read(), self.clock(), self.rules.cost, self.policies())
        return documents.with_idle_usage(found, self.idle_usage())

    def queue(self, name: str) -> Document:
        """See `Queries`."""
        queue = next((document for document in self.queues() if document["metadata"]["name"] == name), None)
        if queue is None:
            raise UnknownObject(f"{UNKNOWN_PREFIX}queue {name} in the queues")
        return queue

    def snapshot(self) -> Snapshot:
        """Return a snapshot of every queue with its first jobs. Raises QueueError."""
        self.check_owner()
        return self._snapshots.read()

    def next(self, count: int, *, roomy: bool = False) -> Document:
        """See `Queries`."""
        self.check_owner()
        count = max(1, min(count, MOST_FORECAST_PICKS))
        snapshot, picks = self._snapshots.forecast(self.rules, count, roomy=roomy)
        items = documents.next_picks(picks, self.clock())
        return {"items": items, "pool": documents.room(snapshot), "waiting": documents.waiting_count(snapshot)}

    def places(self, queues: Collection[str]) -> list[Document]:
        """See `Queries`."""
        self.check_owner()
        snapshot = self._snapshots.read(read_depth.per_queue(len(queues)), queues)
        return documents.places(snapshot, queues)

    def job(self, key: JobKey) -> Document:
        """See `Queries`."""
        self.check_owner()
        place = self.store.place(key)
        if place is not None and place.entry.kind == "admit":
            return self._waiting(place)
        reservation = self.store.reservations([key]).get(key)
        if reservation is None:
            return documents.absent(key)
        return documents.admitted(reservation) | ({"growth": self._waiting(place)} if place is not None else {})

    def _waiting(self, place: QueuePosition) -> Document:
        snapshot, now = self._snapshots.read(read_depth.per_queue(1), [place.entry.queue]), self.clock()
        reason = Forecast(snapshot, self.rules).explain(place, now)
        next_pick = self._turn(place)
        is_possible = reason.code != "ExceedsQuota"
        pick_with_room = next_pick or (self._turn(place, roomy=True) if is_possible else None)
        explanation = {"code": reason.code, "message": reason.sentence, "numbers": reason.numbers}
        return documents.waiting(place, next_pick, pick_with_room) | explanation

    def suppose(self, entry: Entry) -> Document:
        """Return the forecast for a job without a place in its queue if it took a place now. Raises QueueError."""
        self.check_owner()
        snapshot = self._snapshots.read(read_depth.per_queue(1), [entry.queue])
        reason = forecast.suppose(snapshot, entry, self.rules, self.clock())
        fits = reason.code == "Next"
        return {"fits": fits, "code": reason.code, "message": reason.sentence, "numbers": reason.numbers}

    def _turn(self, place: QueuePosition, *, roomy: bool = False) -> int | None:
        """Return the number of the job among the next picks; None if it is not one of them."""
        picks = self._snapshots.forecast(self.rules, FORECAST_PICKS, roomy=roomy)[1]
        keys = [pick.waiting.entry.key for pick in picks]
        return keys.index(place.entry.key) + 1 if place.entry.key in keys else None

    def reports(self, key: JobKey) -> Document:
        """See `Queries`."""
        found = self.report_reader.read([key]) if self.report_reader is not None else {}
        return report_documents.describe(found.get(key), self.pods(key))

    def status(self) -> Document:
        """See `Queries`."""
        return documents.stats(self.stats())


def parse_document(value: Any) -> Document:
    """Return a coordinator's answer as a document. Raises CoordinatorError if it is not a JSON object."""
    if not isinstance(value, dict):
        raise CoordinatorError("the coordinator's answer is not a JSON object: is it a torchq coordinator?")
    return value
