"""Ways to choose the nodes of pods: torchq's own places, and others to compare them with.

One rule: whether a gang finds nodes is decided by torchq's own code in all of them; only the choice of nodes differs.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

from bench.support.arena import GPU
from bench.support.scenarios import Nodes
from crds.resources import amounts
from crds.resources.amounts import Amounts
from queues.placement.assignment import Assignment
from queues.placement.gangs import EVERY, Gang, Members, NodeSet, Placed, Shape
from queues.placement.node_room import NodeRoom, bits
from queues.placement.places import ExpectedEnd, Places
from queues.placement.typical_pods import Demand, typical_of

Ends = Callable[[float], Sequence[ExpectedEnd]]
_COMPARED = ("cpu", "memory", GPU)


def gangs() -> Callable[[Amounts], Gang]:
    """Return a function that returns the gang of a job of one pod, the same object for equal demands."""
    known: dict[Demand, Gang] = {}

    def gang_of(demand: Amounts) -> Gang:
        asked = {name: amount for name, amount in demand.items() if name != amounts.JOBS} | {amounts.PODS: 1}
        pod = tuple(sorted(asked.items()))
        return known.get(pod) or known.setdefault(pod, Gang((Members(Shape(pod), 1),)))

    return gang_of


class _RoomWithoutRows(NodeRoom):
    """A room that looks at all nodes for each gang."""

    def place_in_row(self, shape: Shape, count: int) -> int | None:
        """Place nothing."""


class TorchqPlaces(Places):
    """The places of torchq."""

    made_room: type[NodeRoom] = NodeRoom

    def __init__(self, nodes: Nodes, gang_of: Callable[[Amounts], Gang], ends: Ends = lambda _: ()) -> None:
        room, empty = _room(self.made_room, nodes), _room(self.made_room, nodes)
        super().__init__(room, empty, lambda _key, _kind, demand: gang_of(demand), ends)

    def count_typical(self, gangs: Iterable[Gang]) -> None:
        """Look which pods are typical, given the jobs that wait and run."""
        self.set_typical(typical_of(Counter(shape.demand for gang in gangs for shape, _ in gang.members)))


class FirstFit(TorchqPlaces):
    """The first node in their order."""

    made_room = _RoomWithoutRows

    def count_typical(self, gangs: Iterable[Gang]) -> None:
        """Do without."""

    def choose(
        self, members: tuple[Members, ...], within: NodeSet = EVERY, gang: Gang | None = None, own: NodeSet = 0
    ) -> Assignment | None:
        """Return nodes for alike pods, one after the other."""
        del gang, own
        ((shape, count),) = members
        found: list[Placed] = []
        if self.room.total(shape, within) < count:
            return None
        taken = Counter[int]()
        for _ in range(count):
            takes = ((node, fit) for fit, nodes in self.room.takes(shape).items() for node in bits(nodes & within))
            node = min((node for node, fit in takes if fit > taken[node]), key=lambda node: (self.score(node), node))
            taken[node] += 1
            found.append((node, shape, 1))
        return tuple(found)

    def score(self, _node: int) -> float:
        """Return a number; the node with the least is chosen."""
        return 0.0


class BestFit(FirstFit):
    """The node with the least free, where the amounts are parts of the most that a node has, and added."""

    def __init__(self, nodes: Nodes, gang_of: Callable[[Amounts], Gang], ends: Ends = lambda _: ()) -> None:
        super().__init__(nodes, gang_of, ends)
        largest = {name: max(node[name] for node in nodes) for name in _COMPARED}
        self.divisors: Sequence[Amounts] = [largest] * len(nodes)
        self._scores: dict[int, float] = {}
        self._version = -1

    def score(self, node: int) -> float:
        """See FirstFit."""
        changed = self.room.changed_since(self._version)
        for each in self._scores.keys() if changed is None else changed:
            self._scores[each] = self._score(each)
        self._version = self.room.version
        if node not in self._scores:
            self._scores[node] = self._score(node)
        return self._scores[node]

    def _score(self, node: int) -> float:
        free, whole = self.room.free(node), self.divisors[node]
        return sum(free.get(name, 0) / whole[name] for name in _COMPARED)


class Spreading(BestFit):
    """The node of which the largest part is free, as kube-scheduler chooses by default (LeastAllocated)."""

    def __init__(self, nodes: Nodes, gang_of: Callable[[Amounts], Gang], ends: Ends = lambda _: ()) -> None:
        super().__init__(nodes, gang_of, ends)
        self.divisors = nodes

    def _score(self, node: int) -> float:
        return -super()._score(node)


POLICIES: Mapping[str, type[TorchqPlaces]] = {
    "torchq": TorchqPlaces,
    "first_fit": FirstFit,
    "best_fit": BestFit,
    "spreading": Spreading,
}


def _room(kind: type[NodeRoom], nodes: Nodes) -> NodeRoom:
    room = kind(lambda _: EVERY)
    for number, node in enumerate(nodes):
        room.set_capacity(room.index(f"node-{number:05}"), node)
    return room
