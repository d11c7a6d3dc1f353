"""The database of the history, as a process that goes on without it sees it.

One rule: a database that does not answer is opened anew for the next attempt, with the URL that the settings have then.
"""

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

from history.errors import NotReachable
from history.store import HistoryStore
from queues.redis.log_throttle import OutageLog

log = logging.getLogger(__name__)


class OpenStore(HistoryStore, Protocol):
    """A store with a connection."""

    def close(self) -> None:
        """Close the connection."""


class DatabaseAccess:
    """The store, opened at its first use and again after each failure. One thread uses it; any may read `problem`."""

    def __init__(self, open_store: Callable[[], OpenStore], clock: Callable[[], float] = time.monotonic) -> None:
        self._open = open_store
        self._store: OpenStore | None = None
        self._outage = OutageLog(log, clock)
        self.problem = ""
        """Why the last use failed; empty if it did not."""

    @contextmanager
    def store(self) -> Iterator[OpenStore]:
        """Yield the store. Raises NotReachable, after a line in the log, if the database does not answer or takes no
        writes, and any other HistoryError if no attempt can succeed."""
        try:
            if self._store is None:
                self._store = self._open()
            yield self._store
        except NotReachable as error:
            self.close()
            self.problem = str(error)
            self._outage.report_failure(error)
            raise
        self.problem = ""
        self._outage.report_recovery()

    def close(self) -> None:
        """Close the connection, if there is one."""
        store, self._store = self._store, None
        if store is not None:
            store.close()
