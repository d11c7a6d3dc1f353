"""Which queues need more of their entries from the store.

One rule: a queue is noted while its entries are picked, so that more are read before the known ones run out.
"""

from collections.abc import Mapping

from queues.picking.queue_state import QueueState


class UnreadEntries:
    """The names of queues whose known entries are, or soon will be, too few."""

    __slots__ = ("_queues", "exhausted", "needs_entries", "only_unrunnable", "partly_read")

    def __init__(self, queues: Mapping[str, QueueState]) -> None:
        """`queues` belongs to the caller, who calls `add` after each reading and `note` after each pick."""
        self._queues = queues
        self.needs_entries: set[str] = set()
        """Queues that have few known entries, or none that can ever run, while more entries wait and are not requested
        yet."""
        self.exhausted: set[str] = set()
        """Open queues whose next job is unread. No pick is possible while there is one."""
        self.only_unrunnable: set[str] = set()
        """Open queues whose known entries can never run, though others wait behind. They take no part in picks."""
        self.partly_read: set[str] = set()
        """Open queues in which entries wait behind the known ones."""

    def add(self, queue: QueueState) -> None:
        """Note a queue whose known entries have changed."""
        name = queue.spec.name
        for names in (self.needs_entries, self.exhausted, self.only_unrunnable):
            names.discard(name)
        _set_membership(self.partly_read, name, queue.is_partly_read)

    def note(self, queue: QueueState) -> None:
        """Note a queue whose known entries are few."""
        name, is_open = queue.spec.name, queue.spec.open
        _set_membership(self.needs_entries, name, queue.requested is None)
        _set_membership(self.exhausted, name, queue.is_exhausted and is_open)
        _set_membership(self.only_unrunnable, name, queue.has_only_unrunnable and is_open)

    def counts(self) -> Mapping[str, int]:
        """Return the queues in `needs_entries`, and how many known entries of each remain."""
        return {name: self._queues[name].remaining for name in self.needs_entries}

    def request(self, limit: int) -> Mapping[str, int]:
        """Return those of `counts` that have fewer than `limit` entries. They count as requested."""
        counts = {name: count for name, count in self.counts().items() if count < limit}
        for name, count in counts.items():
            self._queues[name].requested = count
            self.needs_entries.discard(name)
        return counts


def _set_membership(names: set[str], name: str, belongs: bool) -> None:
    (names.add if belongs else names.discard)(name)
