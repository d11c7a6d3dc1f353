"""Waiting for jobs: until all of some jobs, or the first of them, have ended or reached a phase.

One rule: a wait makes no request of its own. It reads what the watches of the namespaces show (`job_feed`).
"""

import time
from collections.abc import Callable, Iterable, Iterator

from coordinator.follow import endings
from coordinator.follow.endings import Goal, JobEnding
from coordinator.follow.inbox import Inbox
from coordinator.follow.job_feed import JobFeeds
from crds.keys import JobKey


def wait(
    feeds: JobFeeds,
    keys: Iterable[JobKey],
    *,
    goal: Goal = "Finished",
    first: bool = False,
    timeout: float | None = None,
) -> list[JobEnding]:
    """Return how the waits for some jobs ended, in the order in which they ended.

    With `first`, return as soon as one has ended. After `timeout` seconds, the jobs for which the wait has not ended
    are missing. Raise any ClusterError.
    """
    with Waits(feeds, keys, goal=goal, timeout=timeout) as waits:
        return next(([ending] for ending in waits), []) if first else list(waits)


class Waits(Iterator[JobEnding]):
    """The ends of the waits for some jobs, as they come. `close` ends the iteration, from any thread."""

    def __init__(
        self,
        feeds: JobFeeds,
        keys: Iterable[JobKey],
        *,
        goal: Goal = "Finished",
        timeout: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Begin to follow the jobs. The iteration ends with the last job, or after `timeout` seconds."""
        self._clock = clock
        self._deadline = None if timeout is None else clock() + timeout
        self._goal = goal
        self._feeds = feeds
        self._inbox = Inbox()
        self._waiting = dict.fromkeys(keys)
        self._followed: dict[str, list[JobKey]] = {}
        for key in self._waiting:
            self._followed.setdefault(key.namespace, []).append(key)
        self._attached = {namespace: feeds.of(namespace) for namespace in self._followed}
        for namespace, feed in self._attached.items():
            feed.attach(self._inbox, self._followed[namespace])

    def __next__(self) -> JobEnding:
        """Wait for the next end. Raise StopIteration after the last one, or at the deadline."""
        while self._waiting:
            left = None if self._deadline is None else max(0.0, self._deadline - self._clock())
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

    def close(self) -> None:
        """End the iteration."""
        self._inbox.close()
        for namespace, feed in self._attached.items():
            feed.detach(self._inbox, self._followed[namespace])

    def __enter__(self) -> "Waits":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
