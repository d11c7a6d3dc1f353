"""Which jobs have an `activeDeadlineSeconds`, and what that says about when room is free again.

One rule: a moment is given only where it is enforced, and then the latest possible one. Jobs without a deadline are not
kept here.

The room of an admitted job is free again at its admission + `activeDeadlineSeconds` + the longest grace of its pods +
END_SECONDS at the latest. That holds because a worker ends the job then whatever hinders it, and because the deadline
of a job that is queued or admitted cannot be moved to a later moment (`crds.schema.change_rules`). It does not hold
for pods that
stay beyond their grace: their node is dead, finalizers keep them, or their deletion was asked for with another grace.
"""

import threading
from collections.abc import Callable

from coordinator.cache.views import JobView
from crds.keys import JobKey
from queues.picking.backfill import End, Forecast

GRANT_SECONDS = 30.0
"""What it may take from a pick until a worker has written the admission, and by how much their clocks may differ."""
END_SECONDS = 30.0
"""What it may take from a deadline until a worker has acted, and by how much clocks may differ."""


class Deadlines:
    """Safe to note in one thread and to ask in another."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._admitted: dict[JobKey, JobView] = {}
        self._queued: dict[JobKey, tuple[str, str, float]] = {}
        """Of jobs that wait: the key as text, the queue, and how long their room is not free once they are picked."""

    def note(self, before: JobView | None, after: JobView | None) -> None:
        """A job has changed."""
        if (before is None or before.lasts is None) and (after is None or after.lasts is None):
            return
        with self._lock:
            if before is not None:
                self._admitted.pop(before.key, None)
                self._queued.pop(before.key, None)
            if after is None or after.lasts is None:
                return
            if after.admission is not None:
                self._admitted[after.key] = after
            elif after.phase == "Queued":
                seconds = GRANT_SECONDS + after.lasts.seconds + END_SECONDS
                self._queued[after.key] = str(after.key), after.queue, seconds

    def forecast(self, occupied: Callable[[JobKey], bool]) -> Forecast | None:
        """What is known now; None if there is no waiting job that room could be lent to. `occupied`: whether there are
        pods of a job that hold room."""
        if not self._queued:
            return None
        with self._lock:
            queued, admitted = list(self._queued.values()), list(self._admitted.values())
        ends: list[End] = []
        for job in admitted:
            if job.finished and not occupied(job.key):
                self._forget(job)
            elif job.admission is not None and job.lasts is not None and job.lasts.since is not None:
                ends.append((job.lasts.since + job.lasts.seconds + END_SECONDS, job.admission.charge))
        return Forecast(
            ends=tuple(sorted(ends, key=lambda end: end[0])),
            longest={key: seconds for key, _, seconds in queued},
            queues=frozenset(queue for _, queue, _ in queued),
        )

    def _forget(self, job: JobView) -> None:
        """A job has ended and holds nothing any more."""
        with self._lock:
            if self._admitted.get(job.key) is job:
                del self._admitted[job.key]
