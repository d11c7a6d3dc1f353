"""The reason in the status of a waiting job.

One rule: the reason is for people, and no decision depends on it. A reason is written only when its code changes.
Tenants take turns at the writes, and the oldest job of a tenant is first.

Routing reports at once the reason that keeps a job out of the order of its queue, or keeps it waiting without end
(`coordinator.routing.eligibility`). Of the other jobs, the first one of each queue that can ever run gets a reason
once it has waited for a while (`queues.picking.explain`). The jobs behind this first job get no reason.
"""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from coordinator.cache.views import JobView
from coordinator.cache.watches import Watches
from coordinator.health.rounds import Rounds
from coordinator.leader.status_writer import Lane, Put
from coordinator.routing import eligibility, route
from coordinator.routing.eligibility import Eligibility
from crds import timestamps
from crds.keys import JobKey
from queues import errors as queue_errors
from queues.picking import read_depth
from queues.picking.explain import Explanation, explain
from queues.picking.picker import Picker
from queues.picking.snapshot_cache import merge
from queues.placement.places import Places
from queues.rules import PickRules
from queues.store import QueueReader
from queues.values import Entry, QueuePosition, QueueSnapshot, Snapshot

CHANGE_SECONDS = 30.0
"""How long, in seconds, the code of a first job stays even if another code would be right by now, because free room
changes constantly."""
PASSING = frozenset({"Next", "BehindOthers", "New"})
"""The codes that change too soon to be read; they are not written."""
NOW_TOO_LARGE = ("WaitingForPool", "the pool has no room for the job")
"""The reason of a job that is larger than the pool is now. Routing reports it if the job can never fit."""
log = logging.getLogger(__name__)


@dataclass(slots=True)
class Reasons(Rounds):
    """The reasons that jobs wait. The control loop reports some reasons; a thread of this class finds the other
    reasons.
    """

    loop, subject, seconds = "reasons", "the reasons that jobs wait", 5.0
    lane: Lane[JobKey]
    watches: Watches
    store: QueueReader
    rules: PickRules
    after: float
    """Seconds that a first job waits before its status gives a reason."""
    implicit: bool = False
    """Whether queues are implicit."""
    clock: Callable[[], float] = time.time
    places: Callable[[], Places | None] = lambda: None
    """A function that returns a copy of the places of jobs on nodes, where they are known."""
    _explained: dict[JobKey, tuple[str, float]] = field(default_factory=dict)
    """By first job, the code of its last explanation, and the time of that explanation."""

    def __post_init__(self) -> None:
        self.lane.refresh = self._refresh

    def note(self, job: JobView, reason: Eligibility | None) -> None:
        """Record the reason that routing gives for a job. A reason of None withdraws an earlier reason."""
        if reason is not None:
            self._put(job, reason.code, reason.sentence)
        elif self.lane.waiting(job.key).get("reason", "Next") in eligibility.CODES | {""}:
            self.lane.discard(job.key)

    def _put(self, job: JobView, code: str, sentence: str) -> None:
        tenant = route.tenant(job.queue, job.key.namespace, self.watches.rules())
        self.lane.put(job.key, {"reason": code, "message": sentence}, tenant=tenant, rank=job.submitted)

    def look(self) -> None:
        """Put the reasons of the first jobs of all queues."""
        now = self.clock()
        try:
            snapshot = self._first_jobs()
        except queue_errors.QueueError as error:
            log.debug("reasons: %s", error)
            return
        waiting = [
            (job, QueuePosition(entry=first, rank=0, waiting=view.waiting))
            for view in snapshot.queues
            if (first := self._first(view)) is not None
            and (job := self.watches.job(first.key)) is not None
            and job.admission is None
            and now - job.submitted >= self.after
        ]
        forecast = Picker(snapshot, self.rules, places=self.places()) if waiting else None
        self._explained = {key: (code, at) for key, (code, at) in self._explained.items() if now - at < CHANGE_SECONDS}
        for job, place in waiting:
            assert forecast is not None
            with self.watches.errors.skipping(_subject(job.key)):
                self._explain(job, explain(forecast, place, now), now)

    def _explain(self, job: JobView, explanation: Explanation, now: float) -> None:
        """Put an explanation, unless the reason in the status may stay: it comes from routing, or was just written."""
        is_recent = job.key in self._explained and now - self._explained[job.key][1] < CHANGE_SECONDS
        may_stay = job.reason in eligibility.CODES or is_recent
        is_too_large = explanation.code == "ExceedsQuota"
        code, sentence = NOW_TOO_LARGE if is_too_large else (explanation.code, explanation.sentence)
        if code not in PASSING and code != job.reason and not may_stay:
            self._explained[job.key] = (code, now)
            self._put(job, code, sentence)

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

    def _refresh(self, key: JobKey, put: Put) -> Put | None:
        """Return the reason to write into the present status of a job; None if the job needs no reason, or has it
        already.
        """
        job, code, sentence = self.watches.job(key), put.fields["reason"], put.fields["message"]
        if job is None or job.admission is not None or job.finished or job.deleting:
            return None
        if code == job.reason and not eligibility.is_outdated(job, code, sentence):
            return None
        if code == "QueueNotFound":  # similar names are searched only here, because such jobs are rare
            unknown, rules = Eligibility(code, sentence), replace(self.watches.rules(), implicit=self.implicit)
            sentence = eligibility.with_hint(unknown, job, rules).sentence
        return replace(put, fields={"queue": _queue_status(job, code, sentence)}, version=job.version)


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
