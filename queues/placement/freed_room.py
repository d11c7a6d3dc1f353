"""After how many ends of running jobs alike pods find nodes, and how many of the pods each node takes then.

One rule: one pass over the pods of the jobs that have ended by then, with no change of the room: it costs what these
pods are, and not what all are.
"""

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import NamedTuple

from queues.placement.gangs import Members, NodeSet, Shape
from queues.placement.node_room import bits, set_of
from queues.placement.places import ExpectedEnd, Places


class EnoughRoom(NamedTuple):
    """The first moment at which alike pods find nodes."""

    ended: int
    """How many jobs have ended by then."""
    takes: dict[int, NodeSet]
    """The nodes by how many of the pods they take, above 0."""


def first_moment(places: Places, members: Members, ends: Sequence[ExpectedEnd], within: NodeSet) -> EnoughRoom | None:
    """Return when alike pods find nodes of a set; None if they never do. `ends` are in the order of time."""
    shape, count = members
    freed = _Freed(places, shape, within)
    for ended, end in enumerate((None, *ends)):
        job = places.jobs.get(end.key) if end is not None else None
        if job is not None:
            freed.add(chain(job.bound.items(), job.waiting.items()))
        if freed.total >= count:
            return EnoughRoom(ended, freed.takes())
    return None


class _Freed:
    """The nodes on which pods of a shape may run, while others leave them."""

    def __init__(self, places: Places, shape: Shape, within: NodeSet) -> None:
        room = places.room
        self._room = room
        demand = sorted(shape.demand, key=lambda one: -room.part_of_largest(Shape((one,))))
        self._names = {name: place for place, (name, _) in enumerate(demand)}
        self._amounts = [amount for _, amount in demand]
        self._nodes = frozenset(bits(within & room.allowed(shape.where)))
        self._fits = {node: fit for fit, nodes in room.takes(shape).items() for node in bits(nodes & within)}
        self.total = sum(self._fits.values())
        """How many pods find a node."""
        self._free: dict[int, list[int]] = {}
        """What is free on the nodes that pods have left, in the order of the demand."""
        self._known: dict[tuple[tuple[str, int], ...], list[tuple[int, int]]] = {}
        """The parts of demands that matter."""

    def add(self, pods: Iterable[tuple[tuple[int, tuple[tuple[str, int], ...]], int]]) -> None:
        """Count pods as gone, by node and demand."""
        nodes, frees, fits, amounts = self._nodes, self._free, self._fits, self._amounts
        last, parts = None, []
        for (node, demand), count in pods:
            if node not in nodes:
                continue
            if demand is not last:
                last, parts = demand, self._parts(demand)
            free = frees.get(node)
            if free is None:
                has = self._room.free(node)
                free = frees[node] = [has.get(name, 0) for name in self._names]
            for place, amount in parts:
                free[place] += amount * count
            fit = 0
            for place, wanted in enumerate(amounts):
                least = free[place] // wanted
                if least <= 0:
                    break  # most nodes take none for long
                fit = least if not place or least < fit else fit
            else:
                if (before := fits.get(node, 0)) != fit:
                    self.total += fit - before
                    fits[node] = fit

    def takes(self) -> dict[int, NodeSet]:
        """Return the nodes by how many pods they take, above 0."""
        alike: dict[int, list[int]] = {}
        for node, fit in self._fits.items():
            alike.setdefault(fit, []).append(node)
        return {fit: set_of(nodes) for fit, nodes in alike.items() if fit}

    def _parts(self, demand: tuple[tuple[str, int], ...]) -> list[tuple[int, int]]:
        found = self._known.get(demand)
        if found is None:
            found = [(self._names[name], amount) for name, amount in demand if name in self._names]
            self._known[demand] = found
        return found
