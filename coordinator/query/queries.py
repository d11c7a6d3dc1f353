"""Queries about the queues, answered from the store: for the coordinator, and for admins of Redis.

One rule: queries only read. The picker itself makes the forecasts, and they change nothing.
"""

import time
from collections.abc import Callable, Collection, Mapping
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


class StoreQueries:
    """Queries that are answered from the store; safe to share between threads."""

    def __init__(
        self,
        store: QueueReader,
        stats: Callable[[], QueueStats],
        rules: PickRules,
        policies: Callable[[], Mapping[str, str]] = no_policies,
        clock: Callable[[], float] = time.time,
        idle_usage: Callable[[], Mapping[str, Amounts]] = no_idle_usage,
        reports: ReportReader | None = None,
        pods: Callable[[JobKey], Collection[str]] = lambda _: (),
    ) -> None:
        """Create queries on a store. `policies` returns the stop policies of queues, `idle_usage` what idle growth uses
        of each queue, and `pods` the names of the pods of a job, where they are known."""
        self._store = store
        self._stats = stats
        self._rules = rules
        self._policies = policies
        self._clock = clock
        self._idle_usage = idle_usage
        self._reports = reports
        self._pods = pods
        self._snapshots = SnapshotCache(store, clock)

    def queues(self) -> list[Document]:
        """See `Queries`."""
        found = documents.queues(self._snapshots.read(), self._clock(), self._rules.cost, self._policies())
        return documents.with_idle_usage(found, self._idle_usage())

    def queue(self, name: str) -> Document:
        """See `Queries`."""
        queue = next((document for document in self.queues() if document["metadata"]["name"] == name), None)
        if queue is None:
            raise UnknownObject(f"{UNKNOWN_PREFIX}queue {name} in the queues")
        return queue

    def snapshot(self) -> Snapshot:
        """Return a snapshot of every queue with its first jobs. Raises QueueError."""
        return self._snapshots.read()

    def next(self, count: int, *, roomy: bool = False) -> Document:
        """See `Queries`."""
        count = max(1, min(count, MOST_FORECAST_PICKS))
        snapshot, picks = self._snapshots.forecast(self._rules, count, roomy=roomy)
        items = documents.next_picks(picks, self._clock())
        return {"items": items, "pool": documents.room(snapshot), "waiting": documents.waiting_count(snapshot)}

    def job(self, key: JobKey) -> Document:
        """See `Queries`."""
        place = self._store.place(key)
        if place is not None and place.entry.kind == "admit":
            return self._waiting(place)
        reservation = self._store.reservations([key]).get(key)
        if reservation is None:
            return documents.absent(key)
        return documents.admitted(reservation) | ({"growth": self._waiting(place)} if place is not None else {})

    def _waiting(self, place: QueuePosition) -> Document:
        snapshot, now = self._snapshots.read(read_depth.per_queue(1), [place.entry.queue]), self._clock()
        reason = Forecast(snapshot, self._rules).explain(place, now)
        next_pick = self._turn(place)
        is_possible = reason.code != "ExceedsQuota"
        pick_with_room = next_pick or (self._turn(place, roomy=True) if is_possible else None)
        explanation = {"code": reason.code, "message": reason.sentence, "numbers": reason.numbers}
        return documents.waiting(place, next_pick, pick_with_room) | explanation

    def suppose(self, entry: Entry) -> Document:
        """Return the forecast for a job without a place in its queue if it took a place now. Raises QueueError."""
        snapshot = self._snapshots.read(read_depth.per_queue(1), [entry.queue])
        reason = forecast.suppose(snapshot, entry, self._rules, self._clock())
        fits = reason.code == "Next"
        return {"fits": fits, "code": reason.code, "message": reason.sentence, "numbers": reason.numbers}

    def _turn(self, place: QueuePosition, *, roomy: bool = False) -> int | None:
        """Return the number of the job among the next picks; None if it is not one of them."""
        picks = self._snapshots.forecast(self._rules, FORECAST_PICKS, roomy=roomy)[1]
        keys = [pick.waiting.entry.key for pick in picks]
        return keys.index(place.entry.key) + 1 if place.entry.key in keys else None

    def reports(self, key: JobKey) -> Document:
        """See `Queries`."""
        found = self._reports.read([key]) if self._reports is not None else {}
        return report_documents.describe(found.get(key), self._pods(key))

    def status(self) -> Document:
        """See `Queries`."""
        return documents.stats(self._stats())


def parse_document(value: Any) -> Document:
    """Return a coordinator's answer as a document. Raises CoordinatorError if it is not a JSON object."""
    if not isinstance(value, dict):
        raise CoordinatorError("the coordinator's answer is not a JSON object: is it a torchq coordinator?")
    return value
