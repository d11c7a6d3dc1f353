"""A commit in steps on a Redis (`queues.store.PendingCommit`).

One rule: slow work is done while the caller waits for nothing. A batch is encoded before its commit begins, and the
result of a commit is decoded after the next commit has begun.
"""

import uuid
from collections.abc import Callable
from dataclasses import replace

from queues.storage import commit_codec
from queues.values import Batch, CommitResult, NextEntries, Reservation


class PipelinedCommit:
    """A commit that the server does while this process goes on."""

    def __init__(
        self,
        send: Callable[[Batch, str, commit_codec.Encoded], Callable[[], list[bytes]]],
        read_next_entries: Callable[[list[bytes]], tuple[NextEntries, ...]],
        batch: Batch,
    ) -> None:
        """`send` sends the commit of an encoded batch under a name, and returns a function that waits for the answer.
        `read_next_entries` decodes the next entries of queues in that answer."""
        self.name = uuid.uuid4().hex
        self._send = send
        self._read_next_entries = read_next_entries
        self._batch = batch
        self._picks = commit_codec.encode(batch)
        self._wait: Callable[[], list[bytes]] = list
        self._answer: list[bytes] = []

    def begin(self, change: int) -> None:
        """See PendingCommit."""
        self._wait = self._send(replace(self._batch, change=change), self.name, self._picks)

    def outcome(self) -> CommitResult:
        """See PendingCommit."""
        self._answer = self._wait()
        return commit_codec.outcome(self._answer)

    def reservations(self) -> tuple[Reservation, ...]:
        """See PendingCommit."""
        return commit_codec.reservations(self._batch, self._answer)

    def next_entries(self) -> tuple[NextEntries, ...]:
        """See PendingCommit."""
        return self._read_next_entries(self._answer)
