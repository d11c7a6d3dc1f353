"""Commits in steps (`queues.store.PendingCommit`).

One rule: what takes time is done while nobody waits for it: a batch is encoded before it is its turn, and what became
of it is spelled out after the next one has begun.
"""

import uuid
from collections.abc import Callable
from dataclasses import replace

from queues.storage import commit_codec
from queues.values import Batch, Behind, Committed, Reservation


class AtOnce:
    """A commit that is done as soon as it begins."""

    def __init__(self, commit: Callable[[Batch, str], Committed], batch: Batch) -> None:
        """`commit` does it under a name."""
        self.name = uuid.uuid4().hex
        self._commit = commit
        self._batch = batch
        self._committed = Committed(())

    def begin(self, change: int) -> None:
        """See PendingCommit."""
        self._committed = self._commit(replace(self._batch, change=change), self.name)

    def outcome(self) -> Committed:
        """See PendingCommit."""
        return replace(self._committed, reservations=(), shown=())

    def reservations(self) -> tuple[Reservation, ...]:
        """See PendingCommit."""
        return self._committed.reservations

    def shown(self) -> tuple[Behind, ...]:
        """See PendingCommit."""
        return self._committed.shown


class Sent:
    """A commit that somebody else does."""

    def __init__(
        self,
        send: Callable[[Batch, str, commit_codec.Encoded], Callable[[], list[bytes]]],
        show: Callable[[list[bytes]], tuple[Behind, ...]],
        batch: Batch,
    ) -> None:
        """`send` begins the commit of a batch that is encoded, under a name; what it returns waits for the answer, of
        which `show` reads what is shown."""
        self.name = uuid.uuid4().hex
        self._send = send
        self._show = show
        self._batch = batch
        self._picks = commit_codec.encode(batch)
        self._wait: Callable[[], list[bytes]] = list
        self._answer: list[bytes] = []

    def begin(self, change: int) -> None:
        """See PendingCommit."""
        self._wait = self._send(replace(self._batch, change=change), self.name, self._picks)

    def outcome(self) -> Committed:
        """See PendingCommit."""
        self._answer = self._wait()
        return commit_codec.outcome(self._answer)

    def reservations(self) -> tuple[Reservation, ...]:
        """See PendingCommit."""
        return commit_codec.reservations(self._batch, self._answer)

    def shown(self) -> tuple[Behind, ...]:
        """See PendingCommit."""
        return self._show(self._answer)
