"""What the status of a waiting job says about why it waits.

One rule: people read it, nothing depends on it. Written from one budget, of which tenants take turns, each tenant's
oldest job first, and only when the code changes; never on the way of a pick.

What keeps a job out of its order, or will for ever keep it waiting, is told at once
(`coordinator.routing.eligibility`). Of the
others, the first job of each queue that can ever run is told once it has waited for a while
(`queues.picking.explain`). Of
those behind nothing is stored.
"""

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from coordinator.cache.views import JobView
from coordinator.cache.watches import Watches
from coordinator.leader.round_robin import RoundRobin
from coordinator.routing import eligibility, route
from coordinator.routing.eligibility import Standing
from crds.api_resources import TORCHJOBS
from crds.keys import JobKey
from kube import errors
from kube.api import Cluster
from queues import errors as queue_errors
from queues.picking import read_depth
from queues.picking.explain import Explanation
from queues.picking.forecast import Forecast
from queues.picking.snapshot_cache import merged
from queues.redis.log_throttle import Outage
from queues.rules import Rules
from queues.store import QueueReader
from queues.values import Entry, Place, QueueView, Snapshot

PER_SECOND = 20.0
AT_ONCE = 5
"""So many may be written together."""
EVERY = 0.25
"""Seconds between two rounds of writes."""
LOOK_SECONDS = 5.0
"""Seconds between two looks at the first jobs of the queues."""
CHANGE_SECONDS = 30.0
"""How long what a first job is told stays, though it would be another code by now: room comes and goes all the time."""
REFUSED_SECONDS = 30.0
"""How long nothing is written after the API server has refused for want of a permission."""
PASSING = frozenset({"Next", "BehindOthers", "QueueNotFound"})
"""Codes that are over before anybody has read them."""
NOW_TOO_LARGE = ("WaitingForPool", "the pool has no room for the job")
"""What is said of a job that is larger than the pool is now: whether it can ever fit, routing says."""
ABSENT = (errors.Unreachable, errors.ServerError, errors.TooManyRequests)
"""Errors after which the next job would fare no better."""
ALL = "the reasons that jobs wait"
log = logging.getLogger(__name__)


@dataclass(slots=True)
class Reasons:
    """What is yet to be written. Told by the leader's thread, written by one of its own."""

    cluster: Cluster
    watches: Watches
    store: QueueReader
    rules: Rules
    after: float
    """Seconds a first job waits before it is told anything."""
    implicit: bool = False
    """Whether queues are implicit."""
    clock: Callable[[], float] = time.time
    elapsed: Callable[[], float] = time.monotonic
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _pending: dict[JobKey, tuple[str, str]] = field(default_factory=dict)
    _turns: RoundRobin = field(default_factory=RoundRobin)
    _told: dict[JobKey, tuple[str, float]] = field(default_factory=dict)
    """What first jobs were told, and when."""
    _looked: float = -LOOK_SECONDS
    _free_at: float = 0.0
    _refused: Outage = field(default_factory=lambda: Outage(log))

    def note(self, job: JobView, told: Standing | None) -> None:
        """What routing has to say about a job; None: nothing, also not what it had to say before."""
        with self._lock:
            if told is None:
                if self._pending.get(job.key, ("Next", ""))[0] in eligibility.CODES | {""}:
                    del self._pending[job.key]
                    self._turns.discard(job.key)
            else:
                self._ask(job, told.code, told.sentence)

    def run(self, stop: threading.Event, leading: Callable[[], bool]) -> None:
        """Look and write while leading, until stopped."""
        while not stop.wait(EVERY):
            if leading() and self.watches.synced:
                try:
                    self.step()
                except Exception as error:
                    self.watches.errors.met(ALL, error)
                else:
                    self.watches.errors.over(ALL)

    def step(self) -> int:
        """One round; how many were written."""
        now = self.elapsed()
        if now - self._looked >= LOOK_SECONDS:
            self._looked = now
            self._look()
        written = 0
        while self.elapsed() >= self._free_at and (next_one := self._next()) is not None:
            if not self._write(*next_one):
                break
            written += 1
        return written

    def __len__(self) -> int:
        """Everything that is remembered."""
        with self._lock:
            return len(self._pending) + len(self._turns) + len(self._told)

    def _ask(self, job: JobView, code: str, sentence: str) -> None:
        tenant = route.tenant(job.queue, job.key.namespace, self.watches.rules())
        self._turns.add(tenant, job.submitted, job.key)
        self._pending[job.key] = (code, sentence)

    def _look(self) -> None:
        """At the first job of every queue."""
        now = self.clock()
        try:
            snapshot = self._shown()
        except queue_errors.QueueError as error:
            log.debug("reasons: %s", error)
            return
        waiting = [
            (job, Place(entry=first, rank=0, waiting=view.waiting))
            for view in snapshot.queues
            if (first := self._first(view)) is not None and (job := self._waits(first.key, now)) is not None
        ]
        forecast = Forecast(snapshot, self.rules) if waiting else None
        self._told = {key: (code, at) for key, (code, at) in self._told.items() if now - at < CHANGE_SECONDS}
        for job, place in waiting:
            assert forecast is not None
            try:
                self._explain(job, forecast.explain(place, now), now)
            except Exception as error:
                self.watches.errors.met(_subject(job.key), error)
            else:
                self.watches.errors.over(_subject(job.key))

    def _explain(self, job: JobView, found: Explanation, now: float) -> None:
        code, sentence = NOW_TOO_LARGE if found.code == "ExceedsQuota" else (found.code, found.sentence)
        if code not in PASSING and code != job.told and not self._stays(job, now):
            self._told[job.key] = (code, now)
            with self._lock:
                self._ask(job, code, sentence)

    def _shown(self) -> Snapshot:
        """The first job of every queue; of those whose first one can never run, a few."""
        snapshot = self.store.snapshot(1)
        hidden = [view.spec.name for view in snapshot.queues if view.waiting > 1 and self._first(view) is None]
        if not hidden:
            return snapshot
        found = self.store.snapshot(read_depth.per_queue(len(hidden)), snapshot.change, hidden)
        return found if found.whole else merged(snapshot, found)

    def _first(self, view: QueueView) -> Entry | None:
        """The first job that has not been told that it can never run."""
        jobs = ((each.entry, self.watches.job(each.entry.key)) for each in view.heads)
        return next((entry for entry, job in jobs if job is None or job.told != "ExceedsQuota"), None)

    def _waits(self, key: JobKey, now: float) -> JobView | None:
        """The job, if it has waited long enough."""
        job = self.watches.job(key)
        return job if job is not None and job.admission is None and now - job.submitted >= self.after else None

    def _stays(self, job: JobView, now: float) -> bool:
        """Whether what it is told may stay: routing knows better, or it was told just now."""
        return job.told in eligibility.CODES or (
            job.key in self._told and now - self._told[job.key][1] < CHANGE_SECONDS
        )

    def _next(self) -> tuple[JobView, str, str] | None:
        """The next job that has something to be told still; forgotten here."""
        with self._lock:
            while (key := self._turns.pop()) is not None:
                found, job = self._pending.pop(key, None), self.watches.job(key)
                idle = job is not None and job.admission is None and not (job.finished or job.deleting)
                if found is not None and job is not None and idle and _is_news(job, *found):
                    return job, *found
        return None

    def _write(self, job: JobView, code: str, sentence: str) -> bool:
        """Whether the next one may be written."""
        self._free_at = max(self._free_at, self.elapsed() - (AT_ONCE - 1) / PER_SECOND) + 1 / PER_SECOND
        key = job.key
        try:
            patch = {"status": {"queue": _told(job, code, self._hinted(job, code, sentence))}}
            self.cluster.patch(
                TORCHJOBS, key.name, patch, key.namespace, subresource="status", resource_version=job.version
            )
            self._refused.over()
        except errors.Forbidden as error:
            self._refused.met(error)
            self._free_at = self.elapsed() + REFUSED_SECONDS
            return False
        except ABSENT as error:
            log.debug("reasons: %s", error)
            with self._lock:
                self._ask(job, code, sentence)
            return False
        except errors.ClusterError as error:  # it has changed, and is routed again for that
            log.debug("reason of %s: %s", key, error)
        except Exception as error:
            self.watches.errors.met(_subject(key), error)
        return True

    def _hinted(self, job: JobView, code: str, sentence: str) -> str:
        """The sentence with the names of queues that may be meant. They are looked for here because this is seldom."""
        if code != "QueueNotFound":
            return sentence
        rules = replace(self.watches.rules(), implicit=self.implicit)
        return eligibility.hinted(Standing("QueueNotFound", sentence, ordered=False), job, rules).sentence


def _is_news(job: JobView, code: str, sentence: str) -> bool:
    return code != job.told or eligibility.outdated(job, Standing(code="NamespaceQuota", sentence=sentence))


def _subject(key: JobKey) -> str:
    return f"the reason that TorchJob {key.namespace}/{key.name} waits"


def _told(job: JobView, code: str, sentence: str) -> dict[str, Any]:
    """The part of the status that is ours. A job that has moved on is no returning one in its new queue."""
    found: dict[str, Any] = {"name": job.queue, "reason": code, "message": sentence}
    if job.waits is None or not job.waits.dated:
        found["since"] = datetime.fromtimestamp(job.submitted, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    if job.waits is not None and job.waits.drained and job.waits.queue != job.queue:
        found["drained"] = False
    return found
