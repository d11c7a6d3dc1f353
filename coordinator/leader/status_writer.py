"""The one writer of the statuses that the leader writes. One thread makes all requests, in a fixed order:

    jobs      targets, room that is taken back, hangs, reports and completions of jobs; no budget, 10 in a row
    reasons   the reason that a job waits; 20 a second, tenants take turns
    queues    the figures of TenantQueues; 5 a second

One rule: no lane starves another. Each lane has its turn after a few writes of the previous lane. A request that fails
or hangs delays the other lanes for its own time. After that, the lane of the failed request waits for at least the same
time, while the other lanes do not wait.

The code that decides puts the wanted status, and never waits for the write. Only the newest put for an object is
written. A put that another one has overtaken, or that was made in an earlier term of the leader, is not written.
"""

import logging
import math
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import count, islice
from typing import Any, Generic, NamedTuple, TypeVar

from coordinator.cache.watches import Watches
from coordinator.leader.round_robin import RoundRobin
from crds import integers
from crds.api_resources import TENANT_QUEUES, TORCHJOBS, Resource
from crds.keys import JobKey
from kube import errors
from kube.api import Cluster
from kube.informer import Informer
from kube.process.turns import Turns
from queues.redis.log_throttle import OutageLog

INTERVAL_SECONDS = 0.2
"""The seconds between two rounds of writes."""
RETRY_SECONDS = 1.0
"""The least number of seconds that a lane waits after the API server was unavailable to it."""
REFUSED_SECONDS = 30.0
"""How long nothing of a lane is written after the API server has refused a write because a permission is missing."""
UNAVAILABLE_ERRORS = (errors.Unreachable, errors.Unauthorized, errors.ServerError, errors.TooManyRequests)
"""The errors of an unavailable API server. The write is tried again."""
MOST_INVALID = 1_000
"""The most objects of a lane whose invalid puts are remembered. Those of deleted objects are never asked for again."""
ALL = "the statuses of jobs and queues"
log = logging.getLogger(__name__)


class QueueKey(NamedTuple):
    """The identity of one TenantQueue."""

    name: str
    namespace: str = ""


K = TypeVar("K", JobKey, QueueKey)


@dataclass(frozen=True, slots=True)
class Put:
    """The wanted fields of the status of one object."""

    fields: Mapping[str, Any]
    version: str
    """The resourceVersion that the object must still have; empty: any."""
    term: int
    """The epoch of the leader for whose term it was put."""
    tenant: str
    rank: float | None
    """The place among the puts of the tenant; None: behind all earlier ones."""


class Lane(Generic[K]):
    """The statuses of one kind that are yet to be written, with a budget. Any thread may put."""

    def __init__(
        self,
        resource: Resource,
        shown: Informer[Any],
        subject: str,
        term: Callable[[], int],
        elapsed: Callable[[], float],
        *,
        in_a_row: int,
        per_second: float = math.inf,
    ) -> None:
        """`subject` names for people the written status of `{key}`. `term` returns the leader's epoch; 0 if
        no coordinator leads."""
        self.resource, self.subject, self.in_a_row = resource, subject, in_a_row
        self.refresh: Callable[[K, Put], Put | None] = lambda _, put: put
        """Returns what is to be written by now instead of a put; None: nothing."""
        self.outage = OutageLog(log)
        self._shown, self._term, self._elapsed, self._per_second = shown, term, elapsed, per_second
        self._free_at = 0.0
        self._lock = threading.Lock()
        self._puts: dict[K, Put] = {}
        """What waits, and what is being written: that is not in the order."""
        self._order: RoundRobin[K] = RoundRobin()
        self._numbers = count()
        self._written: dict[K, tuple[float, Mapping[str, Any]]] = {}
        """The resourceVersions of writes that the watch may not have shown yet; infinite until the answer is there."""
        self._invalid: dict[K, Mapping[str, Any]] = {}
        """What the API server has found invalid. It is not written again."""

    def __len__(self) -> int:
        """Return the number of all entries that are kept."""
        return len(self._puts) + len(self._order) + len(self._written) + len(self._invalid)

    def put(
        self, key: K, fields: Mapping[str, Any], version: str = "", *, tenant: str = "", rank: float | None = None
    ) -> None:
        """Want fields of a status, as `coordinator.status_lane` says. Tenants take turns."""
        term = self._term()
        with self._lock:
            before = self._puts.get(key) if key in self._order else None
            if before is not None and version and (before.version, before.term) == (version, term):
                fields = {**before.fields, **fields}
            if self._invalid.get(key) != fields:
                self._add(key, Put(fields, version, term, tenant, rank))

    def discard(self, key: K, *names: str) -> None:
        """Want these fields no more, or no field if none is named. A status that is being written is not tried
        again."""
        with self._lock:
            put = self._puts.pop(key, None)
            names = names if key in self._order else ()
            rest = {name: value for name, value in put.fields.items() if name not in names} if put and names else {}
            if put is not None and rest:
                self._puts[key] = replace(put, fields=rest)
            else:
                self._order.discard(key)

    def waiting(self, key: K) -> Mapping[str, Any]:
        """Return the fields that are yet to be written; empty if there are none."""
        put = self._puts.get(key)
        return put.fields if put is not None else {}

    def is_under_way(self, key: K, fields: Mapping[str, Any] | None = None) -> bool:
        """Return whether a status, with these fields, is being written, or was and the watch has not shown it yet."""
        version, written = self._written.get(key, (0, None))
        return version > self._shown.resource_version and (fields is None or fields == written)

    def due(self) -> Iterator[tuple[K, Put, Put]]:
        """Remove and yield the puts that may be written now, one by one, each with its present meaning. The caller
        ends each with `finish`."""
        while self._elapsed() >= self._free_at:
            with self._lock:
                key = self._order.pop()
                if key is None:
                    return
                put = self._puts[key]
                self._written[key] = math.inf, put.fields
            current = self.refresh(key, put) if put.term == self._term() != 0 else None
            if current is None:
                self.finish(key, put)
                continue
            spent = max(self._free_at, self._elapsed() - (self.in_a_row - 1) / self._per_second)
            self._free_at = spent + 1 / self._per_second
            yield key, put, current

    def finish(self, key: K, put: Put, version: int = 0) -> None:
        """Note the end of a write, which made this resourceVersion (0 if it made none), and forget the versions that
        the watch has shown.
        """
        shown = self._shown.resource_version
        with self._lock:
            written = {**self._written, key: (version, put.fields)}
            self._written = {each: made for each, made in written.items() if made[0] > shown}
            if self._puts.get(key) is put and key not in self._order:
                del self._puts[key]
            if version:
                self._invalid.pop(key, None)

    def retry(self, key: K, put: Put, seconds: float) -> None:
        """Let a put wait again, unless it was overtaken or discarded. The lane pauses for `seconds`."""
        self._free_at = self._elapsed() + seconds
        with self._lock:
            if self._puts.get(key) is put:
                self._add(key, put)

    def refuse(self, key: K, put: Put) -> None:
        """Note that the API server has found a put invalid."""
        with self._lock:
            self._invalid[key] = put.fields
            if len(self._invalid) > MOST_INVALID:
                del self._invalid[next(iter(self._invalid))]

    def _add(self, key: K, put: Put) -> None:
        self._puts[key] = put
        self._order.add(put.tenant, next(self._numbers) if put.rank is None else put.rank, key)


class StatusWriter:
    """The lanes, in their order, and the thread that writes the statuses that are put into the lanes."""

    def __init__(
        self,
        cluster: Cluster,
        watches: Watches,
        term: Callable[[], int],
        elapsed: Callable[[], float] = time.monotonic,
    ) -> None:
        """`term` returns the epoch for which this process leads now; 0 if this process does not lead. The requests of
        `cluster` should not be repeated: the lanes repeat failed requests.
        """
        self.cluster, self._watches, self._elapsed = cluster, watches, elapsed
        jobs, queues = watches.jobs, watches.queues
        job = "TorchJob {0.namespace}/{0.name}"
        self.jobs: Lane[JobKey] = Lane(TORCHJOBS, jobs, f"the status of {job}", term, elapsed, in_a_row=10)
        self.reasons: Lane[JobKey] = Lane(
            TORCHJOBS, jobs, f"the reason that {job} waits", term, elapsed, in_a_row=5, per_second=20.0
        )
        self.queues: Lane[QueueKey] = Lane(
            TENANT_QUEUES, queues, "the status of TenantQueue {0.name}", term, elapsed, in_a_row=5, per_second=5.0
        )

    def run(self, stop: threading.Event, leading: Callable[[], bool], turns: Turns) -> None:
        """Write while this process leads, until stopped, as one of the loops in `turns`."""
        turn = turns.loop("statuses")
        for _ in turn.rounds(stop, INTERVAL_SECONDS):
            with self._watches.errors.skipping(ALL):
                while leading() and not stop.is_set() and self.step():
                    turn.mark()

    def step(self) -> int:
        """Let each lane have its turn; return how many writes were tried."""
        return self.serve(self.jobs) + self.serve(self.reasons) + self.serve(self.queues)

    def serve(self, lane: Lane[K]) -> int:
        """Write the due statuses of one lane, up to its most in a row; return how many writes were tried."""
        tried = 0
        for key, put, current in islice(lane.due(), lane.in_a_row):
            self._write(lane, key, put, current)
            tried += 1
        return tried

    def _write(self, lane: Lane[K], key: K, put: Put, current: Put) -> None:
        """Write one status. Only this function decides what an error means."""
        subject, began, version = lane.subject.format(key), self._elapsed(), 0
        try:
            version = self._patch(lane.resource, key, current)
        except errors.Forbidden as error:
            lane.outage.report_failure(error)
            lane.retry(key, put, REFUSED_SECONDS)
        except UNAVAILABLE_ERRORS as error:
            log.debug("%s: %s", subject, error)
            lane.retry(key, put, max(RETRY_SECONDS, self._elapsed() - began))
        except errors.Invalid as error:
            log.warning("%s cannot be written: %s", subject, error)
            lane.refuse(key, put)
        except errors.ClusterError as error:  # the object has changed, or is gone: who put this hears of it
            log.debug("%s: %s", subject, error)
        except Exception as error:
            self._watches.errors.record(subject, error)
        else:
            lane.outage.report_recovery()
            self._watches.errors.clear(subject)
        finally:
            lane.finish(key, put, version)

    def _patch(self, resource: Resource, key: JobKey | QueueKey, put: Put) -> int:
        """Write one status, and return the resourceVersion of the object after it. Raises ClusterError."""
        patch = {"status": dict(put.fields)}
        made = self.cluster.patch(
            resource, key.name, patch, key.namespace, subresource="status", resource_version=put.version
        )
        return integers.parse(made["metadata"]["resourceVersion"], 0)
