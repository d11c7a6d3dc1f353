"""The cluster that calls speak to: its connection, and the watches that all waits of a namespace share.

One rule: a call uses the cluster that is selected when it begins. Another selection, or credentials that were refused,
make the next call connect anew; calls that go on keep what they have.
"""

import threading
from dataclasses import dataclass, replace
from functools import cached_property

from coordinator.cli.session import Session
from coordinator.follow.job_feed import JobFeeds
from coordinator.local import target


@dataclass(frozen=True)
class ClusterAccess:
    """One connection to a cluster, and its watches."""

    session: Session

    @cached_property
    def feeds(self) -> JobFeeds:
        """The watches: one per namespace, for any number of jobs."""
        return JobFeeds(self.session.cluster)

    @property
    def is_embedded(self) -> bool:
        """Whether this is a local cluster."""
        return self.session.target.data is not None


class ClusterAccesses:
    """The present connection. Safe to share between threads."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._lock = threading.Lock()
        self._present: ClusterAccess | None = None

    def present(self) -> ClusterAccess:
        """Return the connection to the cluster that is selected now. Raises LocalError if that is not known."""
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
