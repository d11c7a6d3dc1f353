"""What the coordinator asks of the place that holds the queues.

One rule: the store decides nothing. It keeps entries and reservations, and applies a batch of picks atomically or not at all, pick by pick.
"""

from collections.abc import Collection, Iterable, Sequence
from typing import Protocol

from crds.amounts import Amounts
from crds.keys import JobKey
from queues.values import Batch, Committed, Entry, QueueSpec, Reservation, Snapshot


class QueueStore(Protocol):
    """The waiting entries and the reservations of every tenant queue. Every method may raise `queues.errors.QueueError`."""

    def epoch(self) -> int:
        """The epoch of the last rebuild; 0 if the store is empty or lost, and then everything but `rebuild` is refused."""

    def rebuild(self, epoch: int, reservations: Iterable[Reservation], entries: Iterable[Entry]) -> None:
        """Replace all content by what the cluster says and open the store under a higher epoch. StaleEpoch if it is not higher."""

    def configure(self, queues: Collection[QueueSpec], pool: Amounts | None) -> None:
        """Set all queues (missing ones close) and the pool. Raises the revision only if something changed."""

    def put(self, entries: Iterable[Entry]) -> None:
        """Let jobs wait, or change how they wait (queue, priority, demand). A job that holds a reservation is left alone."""

    def remove(self, keys: Iterable[JobKey]) -> None:
        """Jobs that wait no longer and hold nothing: forget the entries and free the charges. Safe to repeat."""

    def snapshot(self, heads: int) -> Snapshot:
        """The state for `choose`, with up to `heads` waiting entries of each queue."""

    def commit(self, batch: Batch) -> Committed:
        """Per pick and in order: check epoch, revision, entry version, quota and pool; charge, reserve, take a port, and mark
        the key as work. The first failing pick ends the batch; the earlier ones stand."""

    def reservations(self, keys: Sequence[JobKey] | None = None) -> dict[JobKey, Reservation]:
        """The reservations held, all or of these keys."""
