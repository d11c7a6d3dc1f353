"""What the recorder sees of jobs, pods and queues, as rows that wait to be written.

One rule: an event becomes rows at once. Of a list nobody knows when its changes happened: after a list, `everything`
returns the rows of all that exists, and `absences` says what is gone.
"""

import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from coordinator.recorder.pending_rows import PendingRows
from crds import labels
from crds.api_resources import PODS, TENANT_QUEUES, TORCHJOBS
from history.rows import HoldRow, JobRow, PodRow, Row
from history.sightings import jobs as job_sights
from history.sightings import pods as pod_sights
from history.sightings import queues as queue_sights
from kube.api import Cluster
from kube.informer import Informer
from kube.object_errors import ObjectErrors
from kube.process.turns import Turns
from kube.settings import InformerSettings

WATCHES = InformerSettings(watch_seconds=60)
"""A connection that died in silence is noticed when its watch should have ended. Until then the Lease says that all is
recorded, so these watches are shorter than others."""
CATCH_UP_SECONDS = 10.0
"""How long a watch that goes on after a break may take until it has told everything of the break."""
View = Mapping[str, Any]
"""A trimmed object (`history.sightings`)."""


class Sights:
    """The caches of the recorder. Any thread may read; the informers' threads put rows into `pending`."""

    def __init__(self, cluster: Cluster, pending: PendingRows, now: Callable[[], float]) -> None:
        """`now` is the time of the API server."""
        self._pending = pending
        self._now = now
        self._lock = threading.Lock()
        self._ends: dict[str, int] = {}
        """When jobs ended that may have pods still, by uid."""
        self._open_pods: set[str] = set()
        """The uids of pods whose row has no end."""
        self.errors = ObjectErrors()
        self.jobs: Informer[View] = Informer(
            cluster,
            TORCHJOBS,
            trim=job_sights.trim_job,
            on_change=self._job_changed,
            settings=WATCHES,
            errors=self.errors,
        )
        self.pods: Informer[View] = Informer(
            cluster,
            PODS,
            trim=pod_sights.trim_pod,
            index=lambda pod: pod[pod_sights.JOB] or None,
            label_selector=labels.JOB_UID,
            on_change=self._pod_changed,
            settings=WATCHES,
            errors=self.errors,
        )
        self.queues: Informer[View] = Informer(
            cluster,
            TENANT_QUEUES,
            trim=queue_sights.trim_queue,
            on_change=self._queue_changed,
            settings=WATCHES,
            errors=self.errors,
        )
        self.informers: tuple[Informer[View], ...] = (self.jobs, self.pods, self.queues)
        self._contacts = {informer.resource: Contact(informer, now) for informer in self.informers}

    def start(self, turns: Turns | None = None) -> None:
        """Begin to watch, each resource as one of the loops in `turns`."""
        for informer in self.informers:
            informer.start(turns)

    @property
    def lists(self) -> tuple[int, ...]:
        """The numbers of lists that were read: another value after an absence."""
        return tuple(informer.lists for informer in self.informers)

    @property
    def synced(self) -> bool:
        """Whether everything was read once."""
        return all(self.lists)

    def look(self) -> bool:
        """Return whether everything that has happened was told. Call it regularly."""
        for contact in self._contacts.values():
            contact.look()
        return all(contact.lost_at is None for contact in self._contacts.values())

    def everything(self) -> Iterator[list[Row]]:
        """Yield the rows of each job with its pods, as they are now."""
        for job in self.jobs.values():
            try:
                rows = job_sights.of_job(job, self._seen())
            except Exception as error:  # one job keeps no other job out of the history
                self.errors.record(f"TorchJob {job['metadata'].get('namespace')}/{job['metadata'].get('name')}", error)
                continue
            yield [*rows, *self._note_end(_uid(job), rows)]

    def file_pods(self, uid: str, ended: int | None) -> list[Row]:
        """Return the rows of the pods of a job that is gone, and that ended at a time."""
        if ended is None:
            return []
        self._ends[uid] = ended
        return [row for pod in self.pods.indexed(uid) for row in self._pod_rows(pod)]

    def note_open_pod(self, uid: str) -> None:
        """Note that the row of a pod has no end."""
        with self._lock:
            self._open_pods.add(uid)

    def ended_at(self, uid: str) -> int | None:
        """Return when a job ended; None if that is not known."""
        return self._ends.get(uid)

    def _job_changed(self, before: View | None, after: View | None) -> None:
        if self.jobs.is_listing:
            return
        seen = self._seen()
        if after is not None:
            rows = job_sights.of_job(after, seen)
            self._pending.put([*rows, *self._note_end(_uid(after), rows)])
        elif before is not None:
            rows = self._deleted(before, seen)
            self._pending.put([*rows, *self._note_end(_uid(before), rows)], is_gone=True)
            self._forget(_uid(before))

    def _deleted(self, job: View, seen: int) -> list[Row]:
        """Return the rows of a job that was deleted: now, or while its watch was cut off."""
        lost_at = self._contacts[TORCHJOBS].lost_at
        if lost_at is None or job["metadata"].get("deletionTimestamp"):
            return job_sights.of_deleted_job(job, seen, seen)
        return [*map(_guessed, job_sights.of_deleted_job(job, seen, lost_at))]

    def _note_end(self, uid: str, rows: list[Row]) -> list[Row]:
        """Return the rows of the pods of a job, if it has ended."""
        return self.file_pods(uid, next((row.ended for row in rows if isinstance(row, JobRow)), None))

    def _pod_changed(self, before: View | None, after: View | None) -> None:
        if self.pods.is_listing:
            return
        if after is not None:
            self._pending.put(self._pod_rows(after))
        elif before is not None:
            lost_at = self._contacts[PODS].lost_at
            rows = self._pod_rows(before, self._seen() if lost_at is None else lost_at)
            self._pending.put(rows if lost_at is None else map(_guessed, rows), is_gone=True)
            self._forget(before[pod_sights.JOB])

    def _pod_rows(self, pod: View, gone: int | None = None) -> list[Row]:
        end, uid = self._ends.get(pod[pod_sights.JOB]), _uid(pod)
        with self._lock:
            row = pod_sights.of_pod(pod, end, self._seen(), gone, is_open=uid in self._open_pods)
            if row is None:
                return []
            if row.end is None:
                self._open_pods.add(uid)
            else:
                self._open_pods.discard(uid)
            return [row]

    def _forget(self, uid: str) -> None:
        """Forget the end of a job that has no pod any more."""
        if not self.pods.indexed(uid):
            self._ends.pop(uid, None)

    def _queue_changed(self, before: View | None, after: View | None) -> None:
        if self.queues.is_listing:
            return
        if after is None and before is not None:
            self._pending.put([queue_sights.of_queue(before, self._seen(), deleted=True)], is_gone=True)
        elif after is not None and (before is None or before["spec"] != after["spec"]):
            self._pending.put([queue_sights.of_queue(after, self._seen())])

    def _seen(self) -> int:
        return int(self._now())


def _guessed(row: Row) -> Row:
    """Return a row whose end nobody has seen."""
    match row:
        case JobRow(outcome=job_sights.DELETED) | HoldRow(ended=job_sights.DELETED) | PodRow():
            return replace(row, is_approximate=True)
    return row


def _uid(view: View) -> str:
    return str(view["metadata"].get("uid") or "")


class Contact:
    """Whether one informer shows what happens now, or catches up with what has happened while it was cut off: events
    after a break are complete, but nobody knows when the objects were deleted. One thread calls `look`; any may read.
    """

    def __init__(self, informer: Informer[Any], now: Callable[[], float]) -> None:
        self._informer = informer
        self._now = now
        self._seen = (0, 0)
        """The lists and breaks that `look` has seen."""
        self._resumed_at = 0.0
        self._current_at = 0.0
        """When the informer was known to have told everything."""

    def look(self) -> None:
        """Note whether the watch goes on."""
        informer, now = self._informer, self._now()
        if informer.failing:
            return
        if (seen := (informer.lists, informer.breaks)) != self._seen:
            self._seen, self._resumed_at = seen, now if informer.breaks else 0.0
        if now - self._resumed_at >= CATCH_UP_SECONDS:
            self._current_at = now

    @property
    def lost_at(self) -> int | None:
        """The time since which events may be late; None if they come as they happen."""
        informer = self._informer
        is_news = informer.breaks > 0 and (informer.lists, informer.breaks) != self._seen
        is_late = informer.failing or is_news or self._now() - self._resumed_at < CATCH_UP_SECONDS
        return int(self._current_at) if is_late else None
