"""A commit in steps that is complete as soon as it begins (`queues.store.PendingCommit`).

One rule: the store makes the commit; this module only keeps the result until the caller reads it.
"""

import uuid
from collections.abc import Callable
from dataclasses import replace

from queues.values import Batch, CommitResult, NextEntries, Reservation


class SyncCommit:
    """A commit that is complete when `begin` returns."""

    def __init__(self, commit: Callable[[Batch, str], CommitResult], batch: Batch) -> None:
        """`commit` commits a batch under a name."""
        self.name = uuid.uuid4().hex
        self._commit = commit
        self._batch = batch
        self._committed = CommitResult(())

    def begin(self, change: int) -> None:
        """See PendingCommit."""
        self._committed = self._commit(replace(self._batch, change=change), self.name)

    def outcome(self) -> CommitResult:
        """See PendingCommit."""
        return replace(self._committed, reservations=(), next_entries=())

    def reservations(self) -> tuple[Reservation, ...]:
        """See PendingCommit."""
        return self._committed.reservations

    def next_entries(self) -> tuple[NextEntries, ...]:
        """See PendingCommit."""
        return self._committed.next_entries
