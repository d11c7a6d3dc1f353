"""How far queues are above their weights' shares of the pool.

One rule: a share is a part of the whole pool, by weight among the queues that use it or wait. What counts is the
resource that weights divide (`PickRules.cost`), or else, of the resources of the pool, the one of which a queue has the
largest part.
"""

from functools import cached_property

from crds.resources.amounts import Amounts
from queues.resizing.room import Room


class Shares:
    """What queues use beyond their shares, as parts of the pool."""

    def __init__(self, room: Room, cost: str) -> None:
        """`room` belongs to the caller, who may change it."""
        self._room = room
        counted = {cost: room.capacity[cost]} if cost in room.capacity else room.capacity
        self._capacity = {name: amount for name, amount in counted.items() if amount > 0}

    def above(self, queue: str) -> float:
        """Return how far a queue is above its share with all that its running jobs use."""
        return self.size(self._room.held(queue)) - self._share(queue)

    def paid_above(self, queue: str) -> float:
        """Return how far a queue is above its share with what it has paid for."""
        held, idle = self._room.held(queue), self._room.idle(queue)
        paid = {name: held.get(name, 0) - idle.get(name, 0) for name in self._capacity}
        return self.size(paid) - self._share(queue)

    def size(self, used: Amounts) -> float:
        """Return which part of the pool an amount is."""
        return max([used.get(name, 0) / most for name, most in self._capacity.items()], default=0.0)

    def _share(self, queue: str) -> float:
        return self._room.queues[queue].spec.weight / self._weights

    @cached_property
    def _weights(self) -> int:
        """The sum of the weights of the queues that use something or wait."""
        queues = self._room.queues.values()
        return sum(queue.spec.weight for queue in queues if queue.first is not None or any(queue.used.values())) or 1
