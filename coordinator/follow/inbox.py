"""The newest states of the jobs that one reader follows, delivered by the watches of any number of namespaces.

One rule: a reader that is slow sees the newest state of each job, never a queue of old ones; a deletion is always seen.
"""

import threading
from collections.abc import Iterable

from crds.keys import JobKey
from kube.api import Manifest
from kube.errors import ClusterError

News = tuple[JobKey, Manifest | None]
"""A job and its newest state; None if the job was deleted."""


class Inbox:
    """The unread states of some jobs. Watches write, one reader takes."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._news: dict[JobKey, Manifest | None] = {}
        self._closed = False
        self._error: ClusterError | None = None

    def put(self, key: JobKey, item: Manifest | None) -> None:
        """Note the newest state of a job. Nothing follows a deletion."""
        with self._changed:
            if key not in self._news or self._news[key] is not None:
                self._news[key] = item
                self._changed.notify_all()

    def fail(self, error: ClusterError) -> None:
        """Let the reader raise an error, after the states that came before it."""
        with self._changed:
            self._error = self._error or error
            self._changed.notify_all()

    def close(self) -> None:
        """Let the reader end."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    @property
    def closed(self) -> bool:
        """Whether the reader is to end."""
        return self._closed

    def take(self, timeout: float | None = None) -> News | None:
        """Return a state that was not read yet. Return None after `timeout` seconds, or if the inbox is closed.

        Raise the error of a watch that cannot go on.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._news or self._closed or self._error, timeout)
            if self._closed:
                return None
            if self._news:
                key = next(iter(self._news))
                return key, self._news.pop(key)
            if self._error is not None:
                raise self._error
            return None


def distinct(keys: Iterable[JobKey]) -> list[JobKey]:
    """Return the keys without repetitions, in their order."""
    return list(dict.fromkeys(keys))
