"""The writes of the reason in the status of a waiting job.

One rule: the reason is for people, and no decision depends on it. It is written only when its code changes, and never
delays a pick. All writes share one budget; tenants take turns, and the oldest job of a tenant is first.

Routing reports at once what keeps a job out of the order of its queue, or keeps it waiting without end
(`coordinator.routing.eligibility`). Of the other jobs, the first one of each queue that can ever run gets a reason
once it has
waited for a while (`queues.picking.forecast`). The jobs behind it get none.
"""

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from coordinator.cache.views import JobView
from coordinator.cache.watches import Watches
from coordinator.leader.round_robin import RoundRobin
from coordinator.routing import eligibility, route
from coordinator.routing.eligibility import Eligibility
from crds import timestamps
from crds.api_resources import TORCHJOBS
from crds.keys import JobKey
from kube import errors
from kube.api import Cluster
from kube.process.turns import Turns
from queues import errors as queue_errors
from queues.picking import read_depth
from queues.picking.explain import Explanation
from queues.picking.forecast import Forecast
from queues.picking.snapshot_cache import merge
from queues.redis.log_throttle import OutageLog
from queues.rules import PickRules
from queues.store import QueueReader
from queues.values import Entry, QueuePosition, QueueSnapshot, Snapshot

PER_SECOND = 20.0
AT_ONCE = 5
"""The most reasons that are written in a row."""
INTERVAL_SECONDS = 0.25
"""The seconds between two rounds of writes."""
LOOK_SECONDS = 5.0
"""The seconds between two rounds in which the first jobs of all queues are explained."""
CHANGE_SECONDS = 30.0
"""How long, in seconds, the code of a first job stays even if another code would be right by now, because free room
changes constantly."""
REFUSED_SECONDS = 30.0
"""How long nothing is written after the API server has refused a write because a permission is missing."""
PASSING = frozenset({"Next", "BehindOthers", "New"})
"""The codes that change too soon to be read; they are not written."""
NOW_TOO_LARGE = ("WaitingForPool", "the pool has no room for the job")
"""The reason of a job that is larger than the pool is now. Routing reports it if the job can never fit."""
UNAVAILABLE_ERRORS = (errors.Unreachable, errors.ServerError, errors.TooManyRequests)
"""The errors of an unavailable API server, after which no other write is tried in this round."""
ALL = "the reasons that jobs wait"
log = logging.getLogger(__name__)


@dataclass(slots=True)
class ReasonWriter:
    """The reasons that are yet to be written. The control loop reports them; a thread of this class writes them."""

    cluster: Cluster
    watches: Watches
    store: QueueReader
    rules: PickRules
    after: float
    """Seconds that a first job waits before its status gives a reason."""
    implicit: bool = False
    """Whether queues are implicit."""
    clock: Callable[[], float] = time.time
    elapsed: Callable[[], float] = time.monotonic
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _pending: dict[JobKey, tuple[str, str]] = field(default_factory=dict)
    """By job, the code and the sentence to write."""
    _turns: RoundRobin = field(default_factory=RoundRobin)
    _explained: dict[JobKey, tuple[str, float]] = field(default_factory=dict)
    """By first job, the code of its last explanation, and the time of that explanation."""
    _looked_at: float = -LOOK_SECONDS
    _free_at: float = 0.0
    _refused: OutageLog = field(default_factory=lambda: OutageLog(log))

    def note(self, job: JobView, reason: Eligibility | None) -> None:
        """Record the reason that routing gives for a job. None withdraws an earlier reason."""
        with self._lock:
            if reason is None:
                if self._pending.get(job.key, ("Next", ""))[0] in eligibility.CODES | {""}:
                    del self._pending[job.key]
                    self._turns.discard(job.key)
            else:
                self._enqueue(job, reason.code, reason.sentence)

    def run(self, stop: threading.Event, leading: Callable[[], bool], turns: Turns) -> None:
        """Explain and write while this process leads, until stopped, as one of the loops in `turns`."""
        for _ in turns.loop("reasons").rounds(stop, INTERVAL_SECONDS):
            if leading() and self.watches.synced:
                try:
                    self.step()
                except Exception as error:
                    self.watches.errors.record(ALL, error)
                else:
                    self.watches.errors.clear(ALL)

    def step(self) -> int:
        """Do one round of explaining and writing; return how many statuses were written."""
        now = self.elapsed()
        if now - self._looked_at >= LOOK_SECONDS:
            self._looked_at = now
            self._explain_first_jobs()
        written = 0
        while self.elapsed() >= self._free_at and (next_reason := self._next()) is not None:
            if not self._write(*next_reason):
                break
            written += 1
        return written

    def __len__(self) -> int:
        """Return the number of all entries that are kept."""
        with self._lock:
            return len(self._pending) + len(self._turns) + len(self._explained)

    def _enqueue(self, job: JobView, code: str, sentence: str) -> None:
        tenant = route.tenant(job.queue, job.key.namespace, self.watches.rules())
        self._turns.add(tenant, job.submitted, job.key)
        self._pending[job.key] = (code, sentence)

    def _explain_first_jobs(self) -> None:
        """Enqueue the reasons of the first jobs of all queues."""
        now = self.clock()
        try:
            snapshot = self._first_jobs()
        except queue_errors.QueueError as error:
            log.debug("reasons: %s", error)
            return
        waiting = [
            (job, QueuePosition(entry=first, rank=0, waiting=view.waiting))
            for view in snapshot.queues
            if (first := self._first(view)) is not None and (job := self._late_job(first.key, now)) is not None
        ]
        forecast = Forecast(snapshot, self.rules) if waiting else None
        self._explained = {key: (code, at) for key, (code, at) in self._explained.items() if now - at < CHANGE_SECONDS}
        for job, place in waiting:
            assert forecast is not None
            try:
                self._explain(job, forecast.explain(place, now), now)
            except Exception as error:
                self.watches.errors.record(_subject(job.key), error)
            else:
                self.watches.errors.clear(_subject(job.key))

    def _explain(self, job: JobView, explanation: Explanation, now: float) -> None:
        """Enqueue an explanation, unless the reason in the status may stay."""
        is_too_large = explanation.code == "ExceedsQuota"
        code, sentence = NOW_TOO_LARGE if is_too_large else (explanation.code, explanation.sentence)
        if code not in PASSING and code != job.reason and not self._may_stay(job, now):
            self._explained[job.key] = (code, now)
            with self._lock:
                self._enqueue(job, code, sentence)

    def _first_jobs(self) -> Snapshot:
        """Read the first job of every queue, and more jobs of queues whose first one can never run."""
        snapshot = self.store.snapshot(1)
        hidden = [view.spec.name for view in snapshot.queues if view.waiting > 1 and self._first(view) is None]
        if not hidden:
            return snapshot
        difference = self.store.snapshot(read_depth.per_queue(len(hidden)), snapshot.change, hidden)
        return difference if difference.whole else merge(snapshot, difference)

    def _first(self, view: QueueSnapshot) -> Entry | None:
        """Return the first waiting job of a queue whose status does not say that it can never run. An admitted job that
        waits for more workers gets no reason."""
        jobs = ((head.entry, self.watches.job(head.entry.key)) for head in view.heads if head.entry.kind == "admit")
        return next((entry for entry, job in jobs if job is None or job.reason != "ExceedsQuota"), None)

    def _late_job(self, key: JobKey, now: float) -> JobView | None:
        """Return the job if it has waited long enough for a reason in its status; else None."""
        job = self.watches.job(key)
        return job if job is not None and job.admission is None and now - job.submitted >= self.after else None

    def _may_stay(self, job: JobView, now: float) -> bool:
        """Return whether the reason in the status may stay: it comes from routing, or it was just written."""
        is_recent = job.key in self._explained and now - self._explained[job.key][1] < CHANGE_SECONDS
        return job.reason in eligibility.CODES or is_recent

    def _next(self) -> tuple[JobView, str, str] | None:
        """Remove and return the next job whose status has to change, with the code and the sentence."""
        with self._lock:
            while (key := self._turns.pop()) is not None:
                reason, job = self._pending.pop(key, None), self.watches.job(key)
                is_idle = job is not None and job.admission is None and not (job.finished or job.deleting)
                if reason is not None and job is not None and is_idle and _is_new(job, *reason):
                    return job, *reason
        return None

    def _write(self, job: JobView, code: str, sentence: str) -> bool:
        """Write one reason; return whether the next one may be written."""
        self._free_at = max(self._free_at, self.elapsed() - (AT_ONCE - 1) / PER_SECOND) + 1 / PER_SECOND
        key = job.key
        try:
            patch = {"status": {"queue": _queue_status(job, code, self._with_hint(job, code, sentence))}}
            self.cluster.patch(
                TORCHJOBS, key.name, patch, key.namespace, subresource="status", resource_version=job.version
            )
            self._refused.report_recovery()
        except errors.Forbidden as error:
            self._refused.report_failure(error)
            self._free_at = self.elapsed() + REFUSED_SECONDS
            return False
        except UNAVAILABLE_ERRORS as error:
            log.debug("reasons: %s", error)
            with self._lock:
                self._enqueue(job, code, sentence)
            return False
        except errors.ClusterError as error:  # the job has changed, and is routed again because of that
            log.debug("reason of %s: %s", key, error)
        except Exception as error:
            self.watches.errors.record(_subject(key), error)
        return True

    def _with_hint(self, job: JobView, code: str, sentence: str) -> str:
        """Return the sentence, for an unknown queue with similar names. The names are searched here, because such jobs
        are rare."""
        if code != "QueueNotFound":
            return sentence
        rules = replace(self.watches.rules(), implicit=self.implicit)
        return eligibility.with_hint(Eligibility("QueueNotFound", sentence, ordered=False), job, rules).sentence


def _is_new(job: JobView, code: str, sentence: str) -> bool:
    return code != job.reason or eligibility.is_outdated(job, Eligibility(code="NamespaceQuota", sentence=sentence))


def _subject(key: JobKey) -> str:
    return f"the reason that TorchJob {key.namespace}/{key.name} waits"


def _queue_status(job: JobView, code: str, sentence: str) -> dict[str, Any]:
    """Return the part of status.queue that this writer changes.

    A job that was moved from a drained queue loses its right to be first.
    """
    status: dict[str, Any] = {"name": job.queue, "reason": code, "message": sentence}
    if job.waits is None or not job.waits.dated:
        status["since"] = timestamps.format_time(job.submitted)
    if job.waits is not None and job.waits.drained and job.waits.queue != job.queue:
        status["drained"] = False
    return status
