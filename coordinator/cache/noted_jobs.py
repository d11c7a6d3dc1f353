"""The facts that the coordinator notes of jobs beside their views, with every change of a job.

    NotedJobs       the jobs of one kind: those whose number of workers the coordinator may change, or that hold room
    RaisedCharges   the charges that workers have raised and for which the queues have not paid yet
    EndedJobs       for how long the jobs that ended last held their room
    Deadlines       the jobs with an `activeDeadlineSeconds`, and when their room is free again at the latest
    SeenEnds        when the ends of jobs that held room were seen, and those of their pods
    ImpliedQueues   the queues that exist without a TenantQueue, because competing jobs name them

One rule: other jobs cost nothing here, neither memory nor time.

The room of an admitted job is free again at its admission + `activeDeadlineSeconds` + the longest grace of its pods +
END_SECONDS at the latest. A worker ends the job then in any case, and the deadline of a job that is queued or admitted
cannot be moved to a later time (`crds.schema.change_rules`). The room may become free later if pods outlive their
grace: their node is dead, finalizers keep them, or another client deleted them with another grace.
"""

import heapq
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator
from itertools import count
from typing import NamedTuple

from coordinator.cache.routing_rules import is_implied
from coordinator.cache.views import JobView
from crds.keys import JobKey
from crds.resources import amounts
from crds.resources.amounts import Amounts
from queues.pick_cycle import Hold
from queues.picking.backfill import End, JobEnds
from queues.store import RaisedCharge

MOST_ENDS = 10_000
"""The most ends that are kept: a process that does not lead never takes them."""
MOST_ENDED = 4_096
"""The jobs that ended last, of which the time is known for which they held their room. With so many, no queue makes the
mean much longer or shorter by a few of its own."""
MOST_RAISED = 10_000
"""The most raised charges that are kept: a process that does not lead never takes them."""
GRANT_SECONDS = 30.0
"""The longest time from a pick until a worker has written the admission, with the difference of their clocks."""
END_SECONDS = 30.0
"""The longest time from a deadline until a worker has acted, with the difference of their clocks."""


class NotedJobs:
    """The jobs of one kind; safe to note in one thread and to read in another."""

    def __init__(self, counts: Callable[[JobView], bool]) -> None:
        self._counts = counts
        self._lock = threading.Lock()
        self._jobs: dict[JobKey, JobView] = {}
        self.version = 0
        """A number that rises with every change of one of these jobs."""

    def note(self, before: JobView | None, after: JobView | None) -> None:
        """Record a change of a job."""
        counts = after is not None and self._counts(after)
        if not (counts or (before is not None and self._counts(before))):
            return
        with self._lock:
            self.version += 1
            if before is not None:
                self._jobs.pop(before.key, None)
            if after is not None and counts:
                self._jobs[after.key] = after

    def values(self) -> list[JobView]:
        """Return these jobs."""
        with self._lock:
            return list(self._jobs.values())

    def __len__(self) -> int:
        return len(self._jobs)


def is_autoscaled(job: JobView) -> bool:
    """Return whether the coordinator may change a job's number of workers by itself: the job holds room, or has a
    target without room.
    """
    scaling = job.autoscaling
    holds = job.admission is not None or (scaling is not None and scaling.target is not None)
    return scaling is not None and holds and not job.finished


def holds_room(job: JobView) -> bool:
    """Return whether a job is admitted and has not finished."""
    return job.admission is not None and not job.finished


def ages(jobs: Iterable[JobView], now: float) -> dict[str, list[float]]:
    """Return for how many seconds admitted jobs hold their room, by queue. The values are read from the status, so that
    a new leader knows what the last leader knew."""
    found: dict[str, list[float]] = {}
    for job in jobs:
        if job.admission is not None:
            admitted = job.admission.admitted_at
            since = job.submitted if admitted is None else admitted.timestamp()
            found.setdefault(job.admission.queue, []).append(now - since)
    return found


def idle_usage(jobs: Iterable[JobView]) -> dict[str, Amounts]:
    """Return by queue the amounts that the idle growth of jobs uses."""
    usage: dict[str, dict[str, int]] = {}
    for job in jobs:
        scaling = job.autoscaling
        if job.workers is not None and job.admission is not None and scaling is not None and scaling.idle:
            taken = amounts.scale(job.workers.share, scaling.idle)
            amounts.increase(usage.setdefault(job.admission.queue, {}), taken)
    return dict(usage)


class EndedJobs:
    """For how long the jobs that ended last held their room; safe to note in one thread and to read in another.

    They count from the statuses, so that a new leader knows what the last one knew.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ended: list[tuple[float, int, Hold]] = []
        """A heap of when jobs ended, a number that makes each different, and what they held."""
        self._numbers = count()

    def note(self, before: JobView | None, after: JobView | None) -> None:
        """Record a change of a job."""
        if after is None or after.ended is None or (before is not None and before.ended is not None):
            return
        admitted = after.admission.admitted_at if after.admission is not None else None
        if admitted is None:
            return
        with self._lock:
            hold = max(0.0, after.ended - admitted.timestamp()), after.charge
            heapq.heappush(self._ended, (after.ended, next(self._numbers), hold))
            if len(self._ended) > MOST_ENDED:
                heapq.heappop(self._ended)

    def holds(self) -> list[Hold]:
        """Return for how many seconds these jobs held their room, and what they asked for."""
        with self._lock:
            return [hold for _, _, hold in self._ended]


class RaisedCharges:
    """The raised charges of all jobs; safe to note in one thread and to take in another."""

    def __init__(self) -> None:
        self._raised: deque[RaisedCharge] = deque(maxlen=MOST_RAISED)

    def note(self, before: JobView | None, after: JobView | None) -> None:
        """Record a change of a job."""
        if before is None or after is None or before.admission is None or after.admission is None:
            return
        old, new = before.admission, after.admission
        takes_more = any(amount > old.charge.get(name, 0) for name, amount in new.charge.items())
        # A growth has been paid for with its pick.
        if takes_more and (old.attempt, old.grown) == (new.attempt, new.grown):
            self._raised.append(RaisedCharge(new.queue, old.charge, new.charge))

    def clear(self) -> None:
        """Forget all raised charges."""
        self._raised.clear()

    def take(self) -> Iterator[RaisedCharge]:
        """Remove the raised charges, and yield them."""
        while self._raised:
            yield self._raised.popleft()


class Deadlines:
    """The unfinished jobs that have a deadline; safe to note in one thread and to read in another."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._admitted: dict[JobKey, JobView] = {}
        self._queued: dict[JobKey, tuple[str, str, float]] = {}
        """For each waiting job: the key as text, the queue, and how many seconds it holds room once picked."""

    def note(self, before: JobView | None, after: JobView | None) -> None:
        """Record a change of a job."""
        if (before is None or before.room_duration is None) and (after is None or after.room_duration is None):
            return
        with self._lock:
            if before is not None:
                self._admitted.pop(before.key, None)
                self._queued.pop(before.key, None)
            if after is None or after.room_duration is None:
                return
            if after.admission is not None:
                self._admitted[after.key] = after
            elif after.phase == "Queued":
                seconds = GRANT_SECONDS + after.room_duration.seconds + END_SECONDS
                self._queued[after.key] = str(after.key), after.queue, seconds

    def forecast(self, occupied: Callable[[JobKey], bool]) -> JobEnds | None:
        """Return when room becomes free; None if no waiting job could borrow room.

        `occupied` returns whether a job has pods that hold room.
        """
        if not self._queued:
            return None
        with self._lock:
            queued, admitted = list(self._queued.values()), list(self._admitted.values())
        ends: list[End] = []
        for job in admitted:
            if job.finished and not occupied(job.key):  # it holds no room any more
                with self._lock:
                    if self._admitted.get(job.key) is job:
                        del self._admitted[job.key]
            elif job.admission is not None and job.room_duration is not None and job.room_duration.since is not None:
                ends.append((job.room_duration.since + job.room_duration.seconds + END_SECONDS, job.admission.charge))
        return JobEnds(
            ends=tuple(sorted(ends, key=lambda end: end[0])),
            longest={key: seconds for key, _, seconds in queued},
            queues=frozenset(queue for _, queue, _ in queued),
        )


class SeenEnd(NamedTuple):
    """When this process saw the end of a job and of its pods, in seconds since 1970; 0.0: not."""

    pods: float = 0.0
    """When no pod of the job held room any more."""
    job: float = 0.0

    @property
    def seen(self) -> float:
        """When the first of both was seen."""
        return min(filter(None, self), default=0.0)

    @property
    def settled(self) -> float:
        """When the last of both was seen."""
        return max(self)


class SeenEnds:
    """The ends of jobs whose charges are not freed yet; safe to note in one thread and to take in another."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self.clock = clock
        self._lock = threading.Lock()
        self._ends: OrderedDict[JobKey, SeenEnd] = OrderedDict()

    def note(self, before: JobView | None, after: JobView | None) -> None:
        """Record a change of a job."""
        if before is None or after is None or before.finished or not after.finished:
            return
        if before.admission is not None or after.admission is not None:
            self._keep(after.key, job=self.clock())

    def note_pods_gone(self, key: JobKey) -> None:
        """Record that no pod of a job holds room any more."""
        self._keep(key, pods=self.clock())

    def _keep(self, key: JobKey, **seen: float) -> None:
        with self._lock:
            self._ends[key] = self._ends.pop(key, SeenEnd())._replace(**seen)
            if len(self._ends) > MOST_ENDS:
                self._ends.popitem(last=False)

    def take(self, key: JobKey) -> SeenEnd | None:
        """Remove and return the end of a job; None if the job itself was not seen to end."""
        with self._lock:
            end = self._ends.pop(key, None)
        return end if end is not None and end.job else None


class ImpliedQueues:
    """The names of the implied queues; safe to share between threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._names: set[str] = set()
        self._enabled = True

    def __len__(self) -> int:
        return len(self._names)

    def add(self, job: JobView) -> bool:
        """Record the queue that a job makes; return whether that queue is new."""
        name = _implied_queue(job)
        with self._lock:
            is_new = self._enabled and bool(name) and name not in self._names
            if is_new:
                self._names.add(name)
        return is_new

    def recount(self, jobs: Iterable[JobView]) -> frozenset[str]:
        """Return the queues that these jobs imply, and forget all other queues."""
        names = {name for job in jobs if (name := _implied_queue(job))}
        with self._lock:
            self._names = names
        return frozenset(names)

    def disable(self) -> None:
        """Ignore all implied queues from now on: only TenantQueues are queues."""
        with self._lock:
            self._enabled = False
            self._names.clear()


def _implied_queue(job: JobView) -> str:
    """Return the queue that a job implies where queues are implicit; empty if the job implies none.

    A waiting job makes the queue that it names, if its namespace implies that queue. A job that holds room makes the
    queue that it is charged to, whatever its name is.
    """
    if job.finished or job.deleting or job.invalid:
        return ""
    if job.admission is not None:
        return job.admission.queue
    could_be_picked = not (job.held or job.stopped or (job.waits and job.waits.parked))
    return job.queue if could_be_picked and is_implied(job.queue, job.key.namespace) else ""
