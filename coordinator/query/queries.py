"""Queries about the queues, answered from the store: for the coordinator, and for admins of Redis.

One rule: the picker itself makes the forecasts.
"""

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from coordinator.query import documents, report_documents
from coordinator.query.questions import MOST_FORECAST_PICKS, UNKNOWN_PREFIX, Document, UnknownObject
from coordinator.reports.report_store import RedisReports, ReportReader
from crds.keys import JobKey
from crds.resources.amounts import JOBS, PODS, Amounts
from queues.installation import Installation
from queues.picking import read_depth
from queues.picking.explain import ScarceRoom, explain, suppose
from queues.picking.picker import Picker
from queues.picking.snapshot_cache import SnapshotCache
from queues.placement.places import Places
from queues.redis import connection
from queues.redis.location import Location
from queues.rules import PickRules
from queues.storage import stats
from queues.storage.redis_store import RedisStore
from queues.storage.stats import QueueStats
from queues.store import QueueReader
from queues.values import Entry, QueuePosition, Snapshot

FORECAST_PICKS = 100
"""The number of picks that are forecast for an answer about one job."""


@dataclass(slots=True)
class StoreQueries:
    """Queries that are answered from the store; safe to share between threads."""

    store: QueueReader
    stats: Callable[[], QueueStats]
    rules: PickRules
    policies: Callable[[], Mapping[str, str]] = dict
    """A function that returns the stop policies of queues, where they are known."""
    clock: Callable[[], float] = time.time
    idle_usage: Callable[[], Mapping[str, Amounts]] = dict
    """A function that returns what idle growth uses of each queue, where it is known."""
    is_deleted: Callable[[str], bool] = lambda _: False
    """A function that returns whether there is no queue of a name any more, where that is known."""
    report_reader: ReportReader | None = None
    """What training code reports; None: nothing is known of it."""
    pods: Callable[[JobKey], Collection[str]] = lambda _: ()
    """A function that returns the names of the pods of a job, where they are known."""
    check_owner: Callable[[], None] = lambda: None
    """A function that raises ForeignStore if the store holds the queues of another installation."""
    node_places: Callable[[], Places | None] = lambda: None
    """A function that returns a copy of the places of jobs on nodes, where they are known."""
    _snapshots: SnapshotCache = field(init=False)

    def __post_init__(self) -> None:
        self._snapshots = SnapshotCache(self.store, self.clock)

    def queues(self) -> list[Document]:
        """See `Queries`."""
        self.check_owner()
        snapshot, cost = self._snapshots.read(), self.rules.cost
        return documents.queues(snapshot, self.clock(), cost, self.policies(), self.idle_usage(), self.is_deleted)

    def queue(self, name: str) -> Document:
        """See `Queries`."""
        queue = next((document for document in self.queues() if document["metadata"]["name"] == name), None)
        if queue is None:
            raise UnknownObject(f"{UNKNOWN_PREFIX}queue {name} in the queues")
        names = tuple(sorted(queue["status"]["usage"].keys() - {JOBS, PODS})) or (JOBS,)
        held = documents.holders(ScarceRoom(frozenset({name}), names), self.store.reservations().values())
        return queue | {"status": queue["status"] | held}

    def snapshot(self) -> Snapshot:
        """Return a snapshot of every queue with its first jobs. Raises QueueError."""
        self.check_owner()
        return self._snapshots.read()

    def next(self, count: int, *, roomy: bool = False) -> Document:
        """See `Queries`."""
        self.check_owner()
        count = max(1, min(count, MOST_FORECAST_PICKS))
        snapshot, picks = self._snapshots.forecast(self.rules, count, roomy=roomy, places=self.node_places())
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
        reason = explain(Picker(snapshot, self.rules, places=self.node_places()), place, now)
        next_pick = self._turn(place)
        is_possible = reason.code != "ExceedsQuota"
        pick_with_room = next_pick or (self._turn(place, roomy=True) if is_possible else None)
        explanation = {"code": reason.code, "message": reason.sentence, "numbers": reason.numbers}
        holders = documents.holders(reason.room, self.store.reservations().values()) if reason.room else {}
        return documents.waiting(place, next_pick, pick_with_room) | explanation | holders

    def suppose(self, entry: Entry) -> Document:
        """Return the forecast for a job without a place in its queue if it took a place now. Raises QueueError."""
        self.check_owner()
        snapshot = self._snapshots.read(read_depth.per_queue(1), [entry.queue])
        reason = suppose(snapshot, entry, self.rules, self.clock(), self.node_places())
        fits = reason.code == "Next"
        return {"fits": fits, "code": reason.code, "message": reason.sentence, "numbers": reason.numbers}

    def _turn(self, place: QueuePosition, *, roomy: bool = False) -> int | None:
        """Return the number of the job among the next picks; None if the job is not among these picks."""
        picks = self._snapshots.forecast(self.rules, FORECAST_PICKS, roomy=roomy, places=self.node_places())[1]
        keys = [pick.waiting.entry.key for pick in picks]
        return keys.index(place.entry.key) + 1 if place.entry.key in keys else None

    def reports(self, key: JobKey) -> Document:
        """See `Queries`."""
        found = self.report_reader.read([key]) if self.report_reader is not None else {}
        return report_documents.describe(found.get(key), self.pods(key))

    def status(self) -> Document:
        """See `Queries`."""
        return documents.stats(self.stats())


def connect(location: Location, rules: PickRules, own: Callable[[], Installation | None]) -> StoreQueries:
    """Return queries about the queues in a Redis. `own` returns the installation of the cluster, if it is known."""
    redis = connection.connect(location, client_name="torchq-reader")
    return StoreQueries(RedisStore(redis), lambda: stats.read(redis, own()), rules, report_reader=RedisReports(redis))
