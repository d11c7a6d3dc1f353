"""The order in which nodes are best for a pod: where the least becomes unusable for the pods that are typical.

This is fragmentation gradient descent (FGD): Weng et al., "Beware of Fragmentation: Scheduling GPU-Sharing Workloads
with Fragmentation Gradient Descent", USENIX ATC 2023, section 4; here, GPUs are whole ones. A typical kind of pods m
has the weight w(m), and g(n) GPUs are free on node n. Kinds that do not fit on n can use none of them:

    F(n) = g(n) * (the sum of w(m) over the kinds m that do not fit on n)
    growth of a pod on n = F(n with the pod) - F(n)

A pod goes to the node with the least growth. Of equal nodes, it goes to the one that takes the fewest such pods, and
of these to the one with the lowest index. A pod of 1 GPU and 4 CPUs, where 3 of 4 pods are such pods, and 1 of 4 asks
for 8 GPUs and 32 CPUs:

    node   free               F           with the pod              growth
    a      8 GPUs, 64 CPUs    0           7 GPUs: 7 * 1 = 7         7      breaks a whole node
    b      3 GPUs, 64 CPUs    3 * 1 = 3   2 GPUs: 2 * 1 = 2         -1     goes here
    c      3 GPUs, 7 CPUs     3 * 1 = 3   2 GPUs: 2 * (1 + 3) = 8   5      leaves 2 GPUs without CPUs

One rule: a growth is computed anew for the nodes that have changed since it was asked for.
"""

from bisect import bisect_left, insort
from collections.abc import Iterator
from dataclasses import dataclass, field
from operator import sub

from crds.resources.amounts import Amounts
from queues.placement.gangs import NodeSet, Shape
from queues.placement.node_room import NodeRoom, set_of
from queues.placement.typical_pods import TypicalPods

Rank = tuple[int, int]
"""The growth of one pod, and how many such pods a node takes. Nodes with the least rank come first."""

_LEAST_SHAPES, _MOST_RANKS = 16, 200_000
"""For how many shapes ranks are known: at least this number, and else so many that with the nodes they have this
product, of some 40 MB. The shape that was asked for least recently is forgotten first."""


@dataclass(slots=True)
class _Ranks:
    """The ranks of the nodes that take a shape."""

    demand: tuple[int, ...]
    by_node: dict[int, Rank] = field(default_factory=dict)
    nodes: dict[Rank, NodeSet] = field(default_factory=dict)
    order: list[Rank] = field(default_factory=list)
    """The ranks that nodes have, the least first."""
    version: int = -1
    """The version of the room for which it holds."""

    def set_rank(self, node: int, rank: Rank | None) -> None:
        """Note the rank of a node; None if it takes no such pod."""
        before = self.by_node.get(node)
        if rank == before:
            return
        bit = 1 << node
        if before is not None:
            self.nodes[before] ^= bit
            if not self.nodes[before]:
                del self.nodes[before], self.order[bisect_left(self.order, before)]
        if rank is None:
            del self.by_node[node]
            return
        self.by_node[node] = rank
        if rank not in self.nodes:
            self.nodes[rank] = 0
            insort(self.order, rank)
        self.nodes[rank] |= bit

    def set_all(self, by_node: dict[int, Rank]) -> None:
        """Note the ranks of all nodes."""
        alike: dict[Rank, list[int]] = {}
        for node, rank in by_node.items():
            alike.setdefault(rank, []).append(node)
        self.by_node, self.order = by_node, sorted(alike)
        self.nodes = {rank: set_of(nodes) for rank, nodes in alike.items()}


class Gradient:
    """The nodes of a room in the order in which they are best for a pod."""

    def __init__(self, room: NodeRoom, typical: TypicalPods) -> None:
        self.typical = typical
        self._room = room
        self._shapes: dict[Shape, _Ranks] = {}

    def ranked(self, shape: Shape) -> Iterator[tuple[Rank, NodeSet]]:
        """Yield the nodes that take a shape, alike ones together, the best first. It holds until the next change."""
        ranks = self._ranks_of(shape)
        for rank in ranks.order:
            yield rank, ranks.nodes[rank]

    def growth(self, free: Amounts, shape: Shape) -> int:
        """Return by how much of what is free on a node becomes unusable with a pod of a shape."""
        return self._growth(self.typical.amounts_of(free), self.typical.amounts_of(dict(shape.demand)))

    def _growth(self, free: tuple[int, ...], demand: tuple[int, ...]) -> int:
        after = tuple(map(sub, free, demand))
        return self.typical.unusable(after) - self.typical.unusable(free)

    def _ranks_of(self, shape: Shape) -> _Ranks:
        """Return the ranks of the nodes that take a shape now."""
        room, fits = self._room, self._room.fits(shape)
        ranks = self._shapes.get(shape)
        changed = None if ranks is None else room.changed_since(ranks.version)
        if ranks is None or changed is None:
            self._forget_one()
            ranks = self._shapes[shape] = _Ranks(self.typical.amounts_of(dict(shape.demand)))
            ranks.set_all({node: self._rank(node, fit, ranks.demand) for node, fit in fits.items() if fit})
        for node in changed or ():
            fit = fits.get(node, 0)
            ranks.set_rank(node, self._rank(node, fit, ranks.demand) if fit else None)
        ranks.version = room.version
        return ranks

    def _rank(self, node: int, fit: int, demand: tuple[int, ...]) -> Rank:
        return self._growth(self.typical.amounts_of(self._room.free(node)), demand), fit

    def _forget_one(self) -> None:
        most = max(_LEAST_SHAPES, _MOST_RANKS // max(1, len(self._room.names)))
        if len(self._shapes) >= most:
            del self._shapes[min(self._shapes, key=lambda known: self._shapes[known].version)]
