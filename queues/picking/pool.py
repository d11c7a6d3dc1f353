"""The room that all queues share while picks are made, and the one reservation in it.

One rule: whether there is room is decided for a group of queues at once, not for each queue.
"""

from itertools import count

from crds.resources import amounts
from crds.resources.amounts import Amounts
from queues.picking import queue_state
from queues.picking.known_entries import Candidate, Shape, shape
from queues.picking.queue_state import QueueState

ONE_GROUP = 0
"""The group of all queues where nothing is scarce."""
_GroupKey = tuple[frozenset[Shape], bool]
_SPARE_GROUPS = 1_024


class Pool:
    """The capacity, the usage, and the room that is reserved for one job."""

    def __init__(self, capacity: Amounts, used: Amounts) -> None:
        """A pool with an empty capacity limits nothing."""
        self.capacity = capacity
        self.used = dict(used)
        self.used_or_reserved = dict(used)
        self._groups: dict[_GroupKey, int] = {}
        self._least: dict[str, int] | None = None
        self._numbers = count(ONE_GROUP + 1)

    def fits(self, demand: Amounts) -> bool:
        """Return whether there is room for a demand beside the reservation."""
        return amounts.fits(demand, self.used_or_reserved, self.capacity)

    def fits_reserved(self, demand: Amounts) -> bool:
        """Return whether there is room for the job that holds the reservation."""
        return amounts.fits(demand, self.used, self.capacity)

    def first_fitting(self, queue: QueueState) -> Candidate | None:
        """Return the first of a queue's eligible jobs that fits beside the reservation."""
        for candidate in queue.eligible:
            if self.fits(candidate.demand):
                return candidate
        return None

    def charge(self, demand: Amounts) -> None:
        """Count a demand as used."""
        queue_state.charge_limited(self.used, demand, self.capacity)
        queue_state.charge_limited(self.used_or_reserved, demand, self.capacity)

    def set_used(self, used: Amounts) -> None:
        """Replace the usage by that of the store."""
        self.used = dict(used)

    def reserve(self, demand: Amounts) -> None:
        """Reserve room for a demand. It replaces the reservation before."""
        self.used_or_reserved = dict(self.used)
        queue_state.charge_limited(self.used_or_reserved, demand, self.capacity)

    def group(self, queue: QueueState) -> int:
        """Return the group of a queue: the queues whose eligible jobs have equal demands.

        If one queue of a group finds no room, none does. The pool may reserve room for all of them or for none.
        """
        if not self.capacity:
            return ONE_GROUP
        key = frozenset(shape(candidate.demand) for candidate in queue.eligible), queue.reservable
        if key not in self._groups:
            self._groups[key] = next(self._numbers)
            for candidate in queue.eligible:
                self._lower_least(candidate.demand)
        return self._groups[key]

    def is_exhausted(self) -> bool:
        """Return whether no queue can find room, because less of a resource is free than any queue asks for."""
        return self._least is not None and not amounts.fits(self._least, self.used, self.capacity)

    def _lower_least(self, demand: Amounts) -> None:
        """Keep the least that any queue has ever asked for of each resource: a lower bound of all demands."""
        limited = {name: demand.get(name, 0) for name in self.capacity}
        least = self._least
        self._least = limited if least is None else {name: min(limited[name], least[name]) for name in limited}

    def drop_groups(self, queues: int) -> bool:
        """Drop all groups if there are many more than queues, and return whether it did. Then every queue must bid
        again."""
        if len(self._groups) <= 4 * queues + _SPARE_GROUPS:
            return False
        self._groups.clear()
        self._least = None
        return True
