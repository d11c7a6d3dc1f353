"""Compares the choice of racks for gangs with the documented algorithm of Kueue's topology-aware scheduling (TAS).

Both choose for the same gangs on the same clusters, which are drawn by chance.

One rule: pure, and the rival shares no code with the product.

What is documented of TAS (KEP-2940, BestFit): how many pods fit is counted for each node, and summed for each domain.
For a required level, the domain with the fewest of those in which all pods fit is taken. A preferred level is the same;
if no domain holds all pods, the domains with the most are taken one after the other, and at last the one with the
fewest that holds the rest. Pod sets are assigned one after the other, beside what is assumed of the sets before: here
the largest set first, and where a domain is required, the others have to go to the domain of the first.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random

from bench.options import option
from bench.report import Figures
from queues.placement import domains
from queues.placement.gangs import EVERY, Gang, Members, Shape
from queues.placement.node_room import NodeRoom

RACK = "rack"
GPUS, CPUS = 8, 64
Free = dict[str, int]
Racks = Mapping[str, Sequence[int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The options of the comparison. A third of the gangs are alike workers, the others have one or two other pods."""

    clusters: int = option(20_000, "clusters, each with one gang")
    racks: int = option(8, "racks of a cluster at most")
    nodes: int = option(6, "nodes of a rack at most")
    seed: int = option(1, least=None)


SHORT = Options(clusters=200)


@dataclass(slots=True)
class Rival:
    """TAS: nodes with what is free on them, and the racks."""

    free: list[Free]
    racks: Racks

    def required(self, members: Sequence[Members]) -> set[str]:
        """Return the rack for a gang; none if it is refused."""
        holding = sorted((self._count(rack, members[0].shape), rack) for rack in self.racks)
        chosen = next((rack for pods, rack in holding if pods >= members[0].count), None)
        if chosen is None or not all(self._place(chosen, shape, count) == count for shape, count in members):
            return set()
        return {chosen}

    def preferred(self, members: Sequence[Members]) -> set[str]:
        """Return the racks for a gang; none if it is refused."""
        used: set[str] = set()
        for shape, count in members:
            left = count
            while left:
                counts = sorted((self._count(rack, shape), rack) for rack in self.racks)
                most, largest = counts[-1]
                if not most:
                    return set()
                rack = next((name for pods, name in counts if pods >= left), largest)
                left -= self._place(rack, shape, left)
                used.add(rack)
        return used

    def _count(self, rack: str, shape: Shape) -> int:
        return sum(self._fit(node, shape) for node in self.racks[rack])

    def _fit(self, node: int, shape: Shape) -> int:
        return min(max(0, self.free[node][name]) // amount for name, amount in shape.demand)

    def _place(self, rack: str, shape: Shape, count: int) -> int:
        """Place pods in a rack, the nodes that take the most first and the last one as full as can be. Return how many
        were placed."""
        left = count
        while left:
            fits = sorted((fit, node) for node in self.racks[rack] if (fit := self._fit(node, shape)))
            if not fits:
                break
            fit, node = next((found for found in fits if found[0] >= left), fits[-1])
            for name, amount in shape.demand:
                self.free[node][name] -= amount * min(fit, left)
            left -= min(fit, left)
        return count - left


def run(options: Options) -> Figures:
    """Return how many gangs find racks by both, and by one alone, and who needs more racks."""
    chance = Random(options.seed)
    required = dict.fromkeys(("both", "neither", "only_torchq", "only_tas"), 0)
    preferred = dict.fromkeys(("same", "torchq_fewer", "torchq_more", "only_torchq", "only_tas"), 0)
    for _ in range(options.clusters):
        free, racks, members = _cluster(chance, options)
        room = _room(free, racks)
        largest_first = sorted(members, key=lambda one: -one.count)  # the order that suits TAS best
        ours = domains.choose(room, room, Gang(members, required=RACK), members) is not None
        theirs = bool(Rival([{**node} for node in free], racks).required(largest_first))
        names = {(True, True): "both", (False, False): "neither", (True, False): "only_torchq"}
        required[names.get((ours, theirs), "only_tas")] += 1
        placed = domains.assign(room, Gang(members, preferred=RACK), members, EVERY)
        used = {rack for rack, nodes in racks.items() for node, _, _ in placed if node in nodes}
        others = Rival([{**node} for node in free], racks).preferred(largest_first)
        preferred[_judge(len(used), len(others))] += bool(used or others)
    return {"required": required, "preferred": preferred}


def _judge(ours: int, theirs: int) -> str:
    if not (ours and theirs):
        return "only_torchq" if ours else "only_tas"
    return "same" if ours == theirs else "torchq_fewer" if ours < theirs else "torchq_more"


def _cluster(chance: Random, options: Options) -> tuple[list[Free], Racks, tuple[Members, ...]]:
    """Return the nodes of a cluster, its racks, and a gang."""
    racks: dict[str, Sequence[int]] = {}
    free: list[Free] = []
    for number in range(chance.randint(2, options.racks)):
        size = chance.randint(1, options.nodes)
        racks[f"r{number}"] = range(len(free), len(free) + size)
        free += [{"gpu": chance.randint(0, GPUS), "cpu": chance.randint(0, CPUS), "pods": 110} for _ in range(size)]
    workers = Members(_shape(chance, chance.choice((1, 2, 4, 8))), chance.randint(1, 12))
    others = [Members(_shape(chance, gpus), 1) for gpus in (0, 1)[: chance.randint(0, 2)]]
    return free, racks, (workers, *others)


def _shape(chance: Random, gpus: int) -> Shape:
    demand = {"cpu": chance.choice((2, 4, 8, 16)), "pods": 1} | ({"gpu": gpus} if gpus else {})
    return Shape(tuple(sorted(demand.items())))


def _room(free: Sequence[Free], racks: Racks) -> NodeRoom:
    sets = {rack: sum(1 << node for node in nodes) for rack, nodes in racks.items()}
    room = NodeRoom(lambda _: (1 << len(free)) - 1, lambda _: sets)
    for number, node in enumerate(free):
        room.set_capacity(room.index(f"n{number}"), node)
    return room
