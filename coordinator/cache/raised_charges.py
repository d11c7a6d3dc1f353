"""The charges that workers have raised and for which the queues have not paid yet.

One rule: values only. Their number is bounded, because a process that does not lead never takes them.
"""

from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

from coordinator.cache.views import JobView
from crds.resources.amounts import Amounts
from queues.picking import queue_state

MOST = 10_000
"""The most raised charges that are kept."""


class RaisedCharge(NamedTuple):
    """A charge that is higher than before, because the pods of a job ask for more than their templates."""

    queue: str
    before: Amounts
    after: Amounts


class RaisedCharges:
    """The raised charges of all jobs; safe to note in one thread and to take in another."""

    def __init__(self) -> None:
        self._raised: deque[RaisedCharge] = deque(maxlen=MOST)

    def note(self, before: JobView | None, after: JobView | None) -> None:
        """Record a change of a job."""
        if before is None or after is None or before.admission is None or after.admission is None:
            return
        old, new = before.admission, after.admission
        # A growth has been paid for with its pick.
        if (old.attempt, old.grown) == (new.attempt, new.grown) and old.charge != new.charge:
            self._raised.append(RaisedCharge(new.queue, old.charge, new.charge))

    def clear(self) -> None:
        """Forget all raised charges."""
        self._raised.clear()

    def take(self, cost: str) -> Iterator[tuple[str, int]]:
        """Remove the raised charges. Yield for each its queue and the additional cost of its job.

        `cost` is what a pick costs (`queues.rules`).
        """
        while self._raised:
            queue, before, after = self._raised.popleft()
            more = queue_state.price(after, cost) - queue_state.price(before, cost)
            if more > 0:
                yield queue, more
