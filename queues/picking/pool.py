"""The room that all queues share while picks are made, and the one reservation in it.

One rule: whether there is room is decided for a group of queues at once, not for each queue.
"""

from itertools import count

from crds.resources import amounts
from crds.resources.amounts import NOTHING, Amounts
from queues.picking import queue_state
from queues.picking.prices import Prices
from queues.picking.queue_state import Candidate, QueueState, Shape, shape
from queues.placement import kept_nodes
from queues.placement.gangs import Gang
from queues.placement.places import Places

ONE_GROUP = 0
"""The group of all queues where nothing is scarce."""
_GroupKey = tuple[frozenset[tuple[Shape, Gang | None]], bool, Shape | None]
_SPARE_GROUPS = 1_024


class Pool:
    """The capacity, the usage, and the room that is reserved for one job."""

    def __init__(self, capacity: Amounts, used: Amounts, prices: Prices, places: Places | None = None) -> None:
        """A pool with an empty capacity limits nothing."""
        self.capacity = capacity
        self.prices = prices
        """What picks cost with this capacity."""
        self.used = dict(used)
        self.used_or_reserved = dict(used)
        self.places = places
        """The places of jobs on nodes; None: only sums of amounts count."""
        self._groups: dict[_GroupKey, int] = {}
        self._least: dict[str, int] | None = None
        self._numbers = count(ONE_GROUP + 1)

    def fits(self, demand: Amounts) -> bool:
        """Return whether there is room for a demand beside the reservation."""
        return amounts.fits(demand, self.used_or_reserved, self.capacity)

    def fits_reserved(self, demand: Amounts) -> bool:
        """Return whether there is room for the job that holds the reservation."""
        return amounts.fits(demand, self.used, self.capacity)

    def finds_nodes(self, candidate: Candidate, units: int | None = None, *, on_kept: bool = False) -> bool:
        """Return whether the pods of a job find nodes, with a number of further workers (None: those that it has);
        with `on_kept`, nodes that are kept for the reservation included."""
        places, gang = self.places, candidate.waiting.gang
        if places is None or gang is None:
            return True
        return places.fits(gang, candidate.units if units is None else units, on_kept=on_kept)

    def has_room(self, candidate: Candidate, *, on_kept: bool = False) -> bool:
        """Return whether there is room for a job, and nodes for its pods, beside the reservation; with `on_kept`, in
        the room of the reservation, too."""
        fits = self.fits_reserved if on_kept else self.fits
        return fits(candidate.demand) and self.finds_nodes(candidate, on_kept=on_kept)

    def idle_part(self, demand: Amounts) -> Amounts:
        """Return what is free of a demand where room is reserved for it, of the resources that the pool limits; empty
        if that is nothing."""
        if self.places is not None and self.places.kept_for is not None:
            return {name: amount for name, amount in kept_nodes.idle(self.places, demand).items() if amount > 0}
        limits = {name: amounts.limit_for(self.capacity, name) for name in demand}
        free = {name: limit - self.used.get(name, 0) for name, limit in limits.items() if limit is not None}
        idle = {name: min(demand[name], rest) for name, rest in free.items()}
        return {name: amount for name, amount in idle.items() if amount > 0}

    def first_fitting(self, queue: QueueState) -> Candidate | None:
        """Return the first of a queue's eligible jobs that fits beside the reservation. Those that pass a late job must
        leave what it needs of the resources that they use."""
        late = self._guarded(queue)
        for candidate in queue.eligible:
            demand = candidate.demand
            if late is not None and candidate.position != late.position:
                demand = queue_state.with_needed(demand, late.demand)
            if self.fits(demand) and self.finds_nodes(candidate):
                return candidate
        return None

    @staticmethod
    def _guarded(queue: QueueState) -> Candidate | None:
        """Return the late job of a queue that others of the queue must leave its room; None if there is none. If room
        is reserved for it, the reservation has that room already."""
        return queue.first if queue.is_late and not queue.is_liable else None

    def charge(self, candidate: Candidate) -> str:
        """Count the demand of a job as used, and take places for its pods. Return their nodes (`Places.take`)."""
        demand, nodes = candidate.demand, ""
        if self.places is not None:
            nodes = self.places.take(candidate.waiting.ticket[0], candidate.waiting.gang, candidate.units)
        amounts.increase_limited(self.used, demand, self.capacity)
        amounts.increase_limited(self.used_or_reserved, demand, self.capacity)
        return nodes

    def set_used(self, used: Amounts) -> None:
        """Replace the usage by that of the store."""
        self.used = dict(used)

    def reserve(self, job: Candidate | None, now: float, patience: float) -> None:
        """Reserve room for a job, as nodes where they are known, else as amounts; None: for no job. It replaces the
        reservation before."""
        demand = NOTHING if job is None else job.demand
        if self.places is not None:
            key, gang = ("", None) if job is None else (job.waiting.ticket[0], job.waiting.gang)
            kept_nodes.keep(self.places, key, gang, now, patience)
            demand = demand if gang is None else kept_nodes.free_on(self.places, self.capacity)
        self.used_or_reserved = dict(self.used)
        amounts.increase_limited(self.used_or_reserved, demand, self.capacity)

    def group(self, queue: QueueState) -> int:
        """Return the group of a queue: the queues whose eligible jobs have equal demands and gangs.

        If one queue of a group finds no room, none does. The pool may reserve room for all of them or for none.
        """
        if not self.capacity:
            return ONE_GROUP
        alone = len(queue.eligible) == 1 and queue.contends_with_first
        guarded = None if alone else self._guarded(queue)
        late = None if guarded is None else shape(guarded.demand)
        shapes = frozenset((shape(candidate.demand), candidate.waiting.gang) for candidate in queue.eligible)
        key = shapes, queue.reservable, late
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
