"""Charges that workers have raised since they were last asked for: what their queues have yet to pay.

One rule: values only, and bounded: a process that does not lead never asks for them.
"""

from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

from coordinator.cache.views import JobView
from crds.resources.amounts import Amounts
from queues.picking import queue_state

MOST = 10_000
"""Raised charges that are remembered."""


class Raised(NamedTuple):
    """An admitted job is charged for more than before, because its pods ask for more than their templates."""

    queue: str
    before: Amounts
    after: Amounts


class RaisedCharges:
    """Safe to note in one thread and to take in another."""

    def __init__(self) -> None:
        self._raised: deque[Raised] = deque(maxlen=MOST)

    def note(self, before: JobView | None, after: JobView | None) -> None:
        """A job has changed."""
        old, new = before and before.admission, after and after.admission
        if old and new and old.attempt == new.attempt and old.charge != new.charge:
            self._raised.append(Raised(new.queue, old.charge, new.charge))

    def clear(self) -> None:
        """Forget them."""
        self._raised.clear()

    def take(self, cost: str) -> Iterator[tuple[str, int]]:
        """Queues, each with what a job of it costs more than before, as picks are paid (`queues.rules`); forgotten
        here."""
        while self._raised:
            queue, before, after = self._raised.popleft()
            more = queue_state.price(after, cost) - queue_state.price(before, cost)
            if more > 0:
                yield queue, more
