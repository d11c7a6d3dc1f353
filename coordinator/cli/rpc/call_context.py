"""The inputs of a call: its cluster, its checked parameters, and the open call itself, as long as it has no answer.

One rule: a call uses the cluster that is selected when it begins. Another selection, or credentials that were refused,
make the next call connect anew; calls in progress keep their connection. A stream stops before it has more than a
window of items on their way, so that a slow reader stalls no other call.
"""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from coordinator.cli.session import Session
from coordinator.follow.job_feed import JobFeeds
from coordinator.local import target
from torchq._protocol import WINDOW

Params = Mapping[str, Any]
Tell = Callable[[str, str], object]
"""A function that sends a note for people, with its level."""


@dataclass(frozen=True)
class ClusterAccess:
    """One connection to a cluster, and its watches."""

    session: Session

    @cached_property
    def feeds(self) -> JobFeeds:
        """The watches: one per namespace, for any number of jobs."""
        return JobFeeds(self.session.cluster)


class ClusterAccesses:
    """The present connection. Safe to share between threads."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._lock = threading.Lock()
        self._present: ClusterAccess | None = None

    def present(self) -> ClusterAccess:
        """Return the connection to the cluster that is selected now. Raises LocalError if the cluster is not known."""
        session = self._session
        selected = target.find(session.resolved_settings, session.environ)
        with self._lock:
            if self._present is None or self._present.session.target != selected:
                # A copy has no connection yet.
                self._present = ClusterAccess(replace(session))
            return self._present

    def forget(self, access: ClusterAccess) -> None:
        """Let the next call connect anew."""
        with self._lock:
            if self._present is access:
                self._present = None


class OpenCall:
    """One call of a client. A thread works for the call; the thread that reads the requests cancels it."""

    def __init__(self, tell: Tell = lambda _text, _level: None) -> None:
        """Create a call. `tell` sends a note for people, with the level `info` or `warning`."""
        self.tell = tell
        self.stop = threading.Event()
        """Set once nobody waits for the answer."""
        self._changed = threading.Condition()
        self._allowed = WINDOW
        self._closers: list[Callable[[], object]] = []

    @property
    def is_cancelled(self) -> bool:
        """Whether no caller waits for the answer."""
        return self.stop.is_set()

    def when_cancelled(self, close: Callable[[], object]) -> None:
        """Let the cancellation call `close`, which ends the wait of this call's thread."""
        with self._changed:
            if not self.is_cancelled:
                self._closers.append(close)
                return
        close()

    def cancel(self) -> None:
        """End the call."""
        with self._changed:
            self.stop.set()
            closers, self._closers = self._closers, []
            self._changed.notify_all()
        for close in closers:
            close()

    def allow(self, count: int) -> None:
        """Let the stream send more items."""
        with self._changed:
            self._allowed += count
            self._changed.notify_all()

    def may_send(self) -> bool:
        """Wait until one more item may be sent, and count this item. Return False once the call is cancelled."""
        with self._changed:
            self._changed.wait_for(lambda: self._allowed > 0 or self.is_cancelled)
            self._allowed -= 1
            return not self.is_cancelled
