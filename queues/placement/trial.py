"""A room with further pods in it on trial. The room itself stays as it is."""

from collections.abc import Iterable, Iterator
from heapq import merge

from crds.resources.amounts import Amounts
from queues.placement.gangs import NodeSet, Placed, Shape
from queues.placement.gradient import Gradient
from queues.placement.node_room import NodeRoom, count_fitting


class Trial:
    """The nodes of a set, with the pods that a search has placed so far."""

    def __init__(self, room: NodeRoom, within: NodeSet) -> None:
        self._room = room
        self._within = within
        self._free: dict[int, dict[str, int]] = {}
        """What is free on the nodes on which pods were placed."""
        self._touched: NodeSet = 0

    @property
    def touched(self) -> int:
        """The number of nodes on which pods were placed."""
        return len(self._free)

    def free(self, node: int) -> Amounts:
        """Return what is free on a node."""
        return self._free[node] if self._touched >> node & 1 else self._room.free(node)

    def place(self, node: int, shape: Shape, times: int) -> None:
        """Count pods of a shape on a node, or as away from it if `times` is below 0."""
        free = dict(self.free(node))
        for name, amount in shape.demand:
            free[name] = free.get(name, 0) - amount * times
        self._free[node] = free
        self._touched |= 1 << node

    def with_pod(self, node: int, shape: Shape) -> "Trial":
        """Return a trial with one more pod on a node. This one stays as it is."""
        after = Trial(self._room, self._within)
        after._free, after._touched = dict(self._free), self._touched
        after.place(node, shape, 1)
        return after

    def fit(self, node: int, shape: Shape) -> int:
        """Return how many pods of a shape a node takes."""
        return count_fitting(self.free(node), shape.demand) if self._room.allowed(shape.where) >> node & 1 else 0

    def kind(self, node: int, shapes: Iterable[Shape]) -> tuple[frozenset[tuple[str, int]], tuple[int, ...]]:
        """Return a value that is equal for nodes that are alike for some shapes."""
        rest = frozenset((name, amount) for name, amount in self.free(node).items() if amount)
        return rest, tuple(self._room.allowed(shape.where) >> node & 1 for shape in shapes)

    def ranked(self, shape: Shape, gradient: Gradient) -> Iterator[tuple[int, NodeSet]]:
        """Yield nodes with how many pods of a shape they take, the best first (`queues.placement.gradient`)."""
        untouched = self._within & ~self._touched
        ranks = ((rank, nodes & untouched) for rank, nodes in gradient.ranked(shape))
        own = [(node, self.fit(node, shape)) for node in self._free]
        touched = [((gradient.growth(self._free[node], shape), fit), 1 << node) for node, fit in own if fit]
        for (_, fit), nodes in merge(ranks, sorted(touched)):
            yield fit, nodes

    def takes(self, shape: Shape) -> dict[int, NodeSet]:
        """Return the nodes by how many pods of a shape they take, above 0."""
        untouched = self._within & ~self._touched
        takes = {fit: nodes & untouched for fit, nodes in self._room.takes(shape).items()}
        for node in self._free:
            if fit := self.fit(node, shape):
                takes[fit] = takes.get(fit, 0) | 1 << node
        return takes


def fill(takes: Iterable[tuple[int, NodeSet]], shape: Shape, count: int) -> list[Placed]:
    """Return nodes for a number of alike pods, or for as many as find one: nodes in their order, with how many pods
    each takes. Of nodes that are given together, the lowest index comes first."""
    placed: list[Placed] = []
    for fit, nodes in takes if count else ():
        rest = nodes
        while rest:
            lowest = rest & -rest
            if fit >= count:
                placed.append((lowest.bit_length() - 1, shape, count))
                return placed
            placed.append((lowest.bit_length() - 1, shape, fit))
            count -= fit
            rest ^= lowest
    return placed
