"""The jobs with an `activeDeadlineSeconds`, and the time at which their room is free again at the latest.

One rule: only enforced deadlines count, and each time is the latest possible one. Jobs without a deadline are not kept
here.

The room of an admitted job is free again at its admission + `activeDeadlineSeconds` + the longest grace of its pods +
END_SECONDS at the latest. A worker ends the job then in any case, and the deadline of a job that is queued or admitted
cannot be moved to a later time (`crds.schema.change_rules`). The room may become free later if pods outlive their
grace: their node is dead, finalizers keep them, or another client deleted them with another grace.
"""

import threading
from collections.abc import Callable

from coordinator.cache.views import JobView
from crds.keys import JobKey
from queues.picking.backfill import End, JobEnds

GRANT_SECONDS = 30.0
"""The longest time from a pick until a worker has written the admission, with the difference of their clocks."""
END_SECONDS = 30.0
"""The longest time from a deadline until a worker has acted, with the difference of their clocks."""


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
            if job.finished and not occupied(job.key):
                self._forget(job)
            elif job.admission is not None and job.room_duration is not None and job.room_duration.since is not None:
                ends.append((job.room_duration.since + job.room_duration.seconds + END_SECONDS, job.admission.charge))
        return JobEnds(
            ends=tuple(sorted(ends, key=lambda end: end[0])),
            longest={key: seconds for key, _, seconds in queued},
            queues=frozenset(queue for _, queue, _ in queued),
        )

    def _forget(self, job: JobView) -> None:
        """Forget a job that is finished and holds no room any more."""
        with self._lock:
            if self._admitted.get(job.key) is job:
                del self._admitted[job.key]
