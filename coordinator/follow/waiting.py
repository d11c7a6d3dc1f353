"""Waiting for jobs: until all of some jobs, or the first of them, have ended or reached a phase.

One rule: a wait makes no requests. A wait reads the jobs that the watches of the namespaces show (`job_feed`).
"""

import time
from collections import defaultdict
from collections.abc import Iterable, Iterator

from coordinator.follow import endings
from coordinator.follow.endings import Goal, JobEnding
from coordinator.follow.job_feed import JobFeeds, Subscription
from crds.keys import JobKey


class Waits(Subscription, Iterator[JobEnding]):
    """The ends of the waits for some jobs, as they come. `close` ends the iteration, from any thread."""

    def __init__(
        self, feeds: JobFeeds, keys: Iterable[JobKey], *, goal: Goal = "Finished", timeout: float | None = None
    ) -> None:
        """Begin to follow the jobs. The iteration ends with the last job, or after `timeout` seconds."""
        self._deadline = None if timeout is None else time.monotonic() + timeout
        self._goal = goal
        self._waiting = dict.fromkeys(keys)
        followed: defaultdict[str, list[JobKey]] = defaultdict(list)
        for key in self._waiting:
            followed[key.namespace].append(key)
        super().__init__(*((feeds.of(namespace), of_namespace) for namespace, of_namespace in followed.items()))

    def __next__(self) -> JobEnding:
        """Wait for the next end. Raise StopIteration after the last state, or at the deadline."""
        while self._waiting:
            left = None if self._deadline is None else max(0.0, self._deadline - time.monotonic())
            news = self._inbox.take(left)
            if news is None:
                break
            ending = endings.judge(*news, self._goal)
            if ending is not None and ending.key in self._waiting:
                del self._waiting[ending.key]
                return ending
        raise StopIteration

    @property
    def waiting(self) -> list[JobKey]:
        """The jobs for which the wait has not ended."""
        return list(self._waiting)
