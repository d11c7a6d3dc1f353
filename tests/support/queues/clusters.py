"""Small clusters and gangs by chance, and what an exhaustive search says about them. It shares no code with the room.

Half of the gangs certainly fit: their nodes were made from their pods, with little to spare.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random

from queues.placement.assignment import Assignment
from queues.placement.gangs import Members, NodeSet, Shape
from queues.placement.node_room import NodeRoom

RESOURCES = ("cpu", "gpu", "memory")


def shape(where: str = "", **demand: int) -> Shape:
    """Return the shape of pods that ask for some amounts."""
    return Shape(tuple(sorted({**demand, "pods": 1}.items())), where)


def room_of(nodes: Sequence[Mapping[str, int]], allowed: Mapping[str, NodeSet] | None = None) -> NodeRoom:
    """Return a room with nodes of these capacities. Place conditions that are not named allow every node."""
    room = NodeRoom(lambda where: (allowed or {}).get(where, -1))
    for number, capacity in enumerate(nodes):
        room.set_capacity(room.index(f"n{number}"), capacity)
    return room


@dataclass(frozen=True, slots=True)
class Cluster:
    """Nodes with what is free on them, the nodes that meet each place condition, and a gang."""

    nodes: tuple[Mapping[str, int], ...]
    allowed: Mapping[str, frozenset[int]]
    members: tuple[Members, ...]

    @property
    def room(self) -> NodeRoom:
        """A room with these nodes."""
        return room_of(self.nodes, {where: sum(1 << node for node in nodes) for where, nodes in self.allowed.items()})

    @property
    def pods(self) -> list[Shape]:
        """The pods of the gang."""
        return [shape for shape, count in self.members for _ in range(count)]

    def has_assignment(self) -> bool:
        """Return whether the pods have nodes, by trying every node for every pod."""
        return self._finds(self.pods, [dict(node) for node in self.nodes])

    def objection(self, assignment: Assignment) -> str:
        """Return why an assignment does not hold; empty if it does."""
        given: dict[Shape, int] = {}
        free = [dict(node) for node in self.nodes]
        for node, one, count in assignment:
            given[one] = given.get(one, 0) + count
            if node not in self.allowed[one.where]:
                return f"{one} may not run on {node}"
            for name, amount in one.demand:
                free[node][name] = free[node].get(name, 0) - amount * count
        if any(amount < 0 for left in free for amount in left.values()):
            return f"more is used than there is: {free}"
        pods = self.pods
        return "" if given == {one: pods.count(one) for one in pods} else f"other pods were placed: {given}"

    def _finds(self, pods: list[Shape], free: list[dict[str, int]]) -> bool:
        if not pods:
            return True
        first, *rest = pods
        for node in self.allowed[first.where]:
            left = {name: amount - dict(first.demand).get(name, 0) for name, amount in free[node].items()}
            lacks = any(name not in left for name, _ in first.demand) or min(left.values()) < 0
            if not lacks and self._finds(rest, [*free[:node], left, *free[node + 1 :]]):
                return True
        return False


def cluster_by_chance(chance: Random, most_kinds: int = 4) -> Cluster:
    """Return up to 4 nodes with up to 3 resources, and a gang of up to 6 pods of up to 4 kinds."""
    count = chance.randint(1, 4)
    names = RESOURCES[: chance.randint(1, 3)]
    allowed = {where: frozenset(node for node in range(count) if chance.random() < 0.7) for where in ("rack", "zone")}
    allowed[""] = frozenset(range(count))
    kinds = [_shape_by_chance(chance, names) for _ in range(chance.randint(1, most_kinds))]
    pods = [*kinds, *(chance.choice(kinds) for _ in range(chance.randint(0, 6 - len(kinds))))]
    planted = chance.random() < 0.5 and all(allowed[one.where] for one in pods)
    if planted:
        nodes = _nodes_around(chance, pods, allowed)
    else:
        nodes = [{"pods": chance.randint(0, 6), **{name: chance.randint(0, 8) for name in names}} for _ in range(count)]
    return Cluster(tuple(nodes), allowed, tuple(Members(one, pods.count(one)) for one in dict.fromkeys(pods)))


def _shape_by_chance(chance: Random, names: Sequence[str]) -> Shape:
    demand = {name: chance.randint(1, 6) for name in names if chance.random() < 0.8}
    return shape(chance.choice(("", "", "rack", "zone")), **demand)


def _nodes_around(
    chance: Random, pods: Sequence[Shape], allowed: Mapping[str, frozenset[int]]
) -> list[Mapping[str, int]]:
    """Return nodes on which the pods fit, most of them with nothing to spare."""
    nodes = [{"pods": 0} for _ in allowed[""]]
    for one in pods:
        node = nodes[chance.choice(sorted(allowed[one.where]))]
        for name, amount in one.demand:
            node[name] = node.get(name, 0) + amount
    for node in nodes:
        for name in node:
            node[name] += chance.choice((0, 0, 0, 1, 2))
    return list(nodes)
