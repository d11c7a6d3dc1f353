"""The free amounts of nodes, and for each shape how many of its pods each node takes.

One rule: what is known about a shape is brought up to date when it is asked for, from the nodes that changed since.
"""

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from math import inf
from types import MappingProxyType
from typing import Any, TypeVar

from crds.resources.amounts import NOTHING, Amounts
from queues.placement.gangs import EVERY, NodeSet, Shape

_LEAST_SHAPES, _MOST_SHAPES = 256, 2_048
_MOST_FITS = 2_000_000
"""How many shapes are known at a time, within these limits: so many that they and the nodes have this product, of some
80 MB. The shape that was asked for least recently is forgotten first. A round that asks for more shapes than are known
looks at each node for each of them: with 1,000 queues on 1,000 nodes it took 6 seconds, and else it takes 0.1."""
_CONDITIONS = 1_024
_ANSWERS = 4_096
"""The most place conditions and answers that are kept; all are forgotten before there would be more."""
_SPARE_CHANGES = 256

_Answer = TypeVar("_Answer")

Domains = Mapping[str, NodeSet]
"""The nodes that have a label, by its values."""
NO_DOMAINS: Domains = MappingProxyType({})


@dataclass(slots=True)
class _ShapeFits:
    """How many pods of one shape each node takes."""

    shape: Shape
    by_node: dict[int, int] = field(default_factory=dict)
    """The number of pods by the index of the node."""
    takes: dict[int, NodeSet] = field(default_factory=dict)
    """The nodes by the number of pods, which is above 0."""
    total: int = 0
    """The sum over all nodes."""
    nodes: NodeSet = 0
    """The nodes on which the shape may run."""
    version: int = -1
    """The version of the room for which it holds."""

    def set_fit(self, node: int, fit: int) -> None:
        """Note how many pods a node takes."""
        before = self.by_node.get(node, 0)
        if fit == before:
            return
        takes, bit = self.takes, 1 << node
        if before:
            rest = takes[before] ^ bit
            if rest:
                takes[before] = rest
            else:
                del takes[before]
        if fit:
            takes[fit] = takes.get(fit, 0) | bit
        self.by_node[node] = fit
        self.total += fit - before

    def set_all(self, by_node: dict[int, int]) -> None:
        """Note how many pods each node takes."""
        alike: dict[int, list[int]] = {}
        for node, fit in by_node.items():
            alike.setdefault(fit, []).append(node)
        alike.pop(0, None)
        self.takes = {fit: set_of(nodes) for fit, nodes in alike.items()}
        self.total = sum(by_node.values())
        self.by_node = by_node


@dataclass(slots=True)
class _Row:
    """Pods of one shape that were placed on one node, one after the other, and are not counted there yet."""

    shape: Shape
    node: int = 0
    pods: int = 0
    """How many pods were placed."""
    fit: int = 0
    """How many further pods the node takes."""
    total: int = 0
    """How many further pods all nodes take."""


_NO_ROW = _Row(Shape(()))


def _row_of(fits: _ShapeFits) -> _Row:
    """Return the row of the pods that are placed next: on the node that takes the fewest, the lowest of such nodes."""
    least = min(fits.takes, default=0)
    nodes = fits.takes.get(least, 0)
    return _Row(fits.shape, (nodes & -nodes).bit_length() - 1, 0, least, fits.total)


class NodeRoom:
    """The free amounts of nodes, and for each shape how many of its pods each node takes.

    A resource that a node does not have is 0. A node may be used beyond its capacity. Then it takes no pod that asks
    for a resource of which less than 0 is free.
    """

    def __init__(
        self, allowed: Callable[[str], NodeSet], domains: Callable[[str], Domains] = lambda _: NO_DOMAINS
    ) -> None:
        """`allowed` turns a place condition (`Shape.where`) into the set of nodes that meet it, `domains` the name of
        a label into its domains. What they return is kept until `forget_sets`."""
        self.names: list[str] = []
        """The names of the nodes by index. An index is never used again."""
        self._version = 0
        self._allowed, self._find_domains = allowed, domains
        self._domains: dict[str, Domains] = {}
        self._indexes: dict[str, int] = {}
        self._capacity: list[Amounts] = []
        self._free: list[dict[str, int]] = []
        self._largest: dict[str, int] = {}
        self._sets: dict[str, NodeSet] = {}
        self._shapes: dict[Shape, _ShapeFits] = {}
        self._latest = _ShapeFits(Shape(()))
        """What was asked for last. A pick asks for one shape several times."""
        self._row = _NO_ROW
        """What was placed last. Whatever is asked about anything else, its pods are counted before (`_count_row`)."""
        self._changed: list[int] = []
        """The node of each of the last versions, of as many as there are nodes or more."""
        self._answers: dict[Hashable, tuple[int, Any]] = {}
        self._freed = 0
        """The version since which nothing was freed, so that what did not fit then does not fit now."""
        self._resolved = 0
        """The version since which place conditions mean the same."""

    def copy(self) -> "NodeRoom":
        """Return a room that is as this one is now, and apart from it, for any thread: this one stays as it is."""
        copied = NodeRoom(self._allowed, self._find_domains)
        copied.names, copied._indexes = [*self.names], {**self._indexes}
        copied._capacity, copied._free = [*self._capacity], [{**free} for free in self._free]
        copied._sets, copied._domains, copied._version = {**self._sets}, {**self._domains}, self._version
        row = self._row  # read at last: pods that were counted meanwhile are missing then, and never counted twice
        if row.pods:
            copied.use(row.node, row.shape.demand, row.pods)
        return copied

    @property
    def version(self) -> int:
        """A number that rises with every change of what fits."""
        if self._row is not _NO_ROW:
            self._count_row()
        return self._version

    def index(self, name: str) -> int:
        """Return the index of a node. A node that is not known is added, with nothing free."""
        found = self._indexes.get(name)
        if found is None:
            found = self._indexes[name] = len(self.names)
            self.names.append(name)
            self._capacity.append(NOTHING)
            self._free.append({})
            self.forget_sets()
        return found

    def set_capacity(self, node: int, capacity: Amounts) -> None:
        """Set what pods may use of a node in all. The amounts that are used stay."""
        before, free = self._capacity[node], self._free[node]
        for name in before.keys() | capacity.keys():
            free[name] = free.get(name, 0) + capacity.get(name, 0) - before.get(name, 0)
        self._capacity[node] = dict(capacity)
        self._largest.clear()
        self._note_change(node)
        self._freed = self._version

    def use(self, node: int, demand: Iterable[tuple[str, int]], times: int) -> None:
        """Count a demand on a node as used a number of times; as free again if the number is below 0."""
        free, latest = self._free[node], self._latest
        for name, amount in demand:
            free[name] = free.get(name, 0) - amount * times
        self._note_change(node)
        if demand is latest.shape.demand and times > 0 and latest.version == self._version - 1:
            latest.set_fit(node, max(0, latest.by_node.get(node, 0) - times))
            latest.version = self._version  # what was just assigned is used: nothing else need be looked at
        if times < 0:
            self._freed = self._version

    def free(self, node: int) -> Amounts:
        """Return what is free on a node. An amount below 0 is used beyond the capacity."""
        if self._row is not _NO_ROW:
            self._count_row()
        return self._free[node]

    def forget_sets(self) -> None:
        """Resolve all place conditions again: labels, taints or the readiness of nodes have changed."""
        self._sets.clear()
        self._domains.clear()
        self._note_change(0)  # the node does not matter: every version has one
        self._freed = self._resolved = self._version

    def allowed(self, where: str) -> NodeSet:
        """Return the nodes that meet a place condition."""
        found = self._sets.get(where)
        if found is None:
            if len(self._sets) >= _CONDITIONS:
                self._sets.clear()
            found = self._sets[where] = self._allowed(where) & ((1 << len(self.names)) - 1)
        return found

    def domains(self, label: str) -> Domains:
        """Return the nodes that have a label, by its values."""
        found = self._domains.get(label)
        if found is None:
            found = self._domains[label] = self._find_domains(label)
        return found

    def total(self, shape: Shape, within: NodeSet = EVERY) -> int:
        """Return how many pods of a shape alone find a node in a set."""
        if within == EVERY:
            return self._row.total if self._row.shape is shape else self._fits_of(shape).total
        fits = self._fits_of(shape)
        return sum(fit * (nodes & within).bit_count() for fit, nodes in fits.takes.items())

    def takes(self, shape: Shape) -> Mapping[int, NodeSet]:
        """Return the nodes by how many pods of a shape they take, above 0. It holds until the next change."""
        return self._fits_of(shape).takes

    def fits(self, shape: Shape) -> Mapping[int, int]:
        """Return how many pods of a shape each node takes; a node that is not in it takes none."""
        return self._fits_of(shape).by_node

    def changed_since(self, version: int) -> Collection[int] | None:
        """Return the nodes of which something has changed since a version; None if it may be any of them."""
        behind = self.version - version
        if version < self._resolved or behind > len(self._changed):
            return None
        return set(self._changed[-behind:]) if behind else ()

    def part_of_largest(self, shape: Shape) -> float:
        """Return the largest part that a pod takes of the node that has most of a resource; inf if no node has it."""
        return max(self._part(name, amount) for name, amount in shape.demand)

    def answer(self, question: Hashable, decide: Callable[[], _Answer | None]) -> _Answer | None:
        """Return what `decide` says to a question, or has said. A refusal (None) stands until something is freed,
        anything else until the next change."""
        known: tuple[int, _Answer | None] = self._answers.get(question, (-1, None))
        version, answer = known
        if version < self._freed or (answer is not None and version != self.version):
            if len(self._answers) >= _ANSWERS:
                self._answers.clear()
            answer = decide()
            self._answers[question] = self.version, answer
        return answer

    def place_in_row(self, shape: Shape, count: int) -> int | None:
        """Use room for alike pods as `assignment.assign` does, if one node takes them all. Return the node; None if it
        takes several.

        The pods of most jobs are like those of the job before, and go to the same node until it takes no more: that it
        takes the fewest stays so."""
        row = self._row
        if row.shape is not shape or row.fit < count:
            row = self._row = _row_of(self._fits_of(shape))
            if row.fit < count:
                return None
        row.pods += count
        row.fit -= count
        row.total -= count
        return row.node

    def _count_row(self) -> None:
        """Count the pods of the row on their node, and end the row. Callers ask before whether there is a row."""
        row, self._row = self._row, _NO_ROW
        if row.pods:
            self.use(row.node, row.shape.demand, row.pods)

    def _part(self, name: str, amount: int) -> float:
        largest = self._largest.get(name)
        if largest is None:
            largest = max((capacity.get(name, 0) for capacity in self._capacity), default=0)
            self._largest[name] = largest
        return amount / largest if largest > 0 else inf

    def _note_change(self, node: int) -> None:
        """Note that the free amounts of a node changed."""
        if self._row is not _NO_ROW:
            self._count_row()
        self._version += 1
        self._changed.append(node)
        if len(self._changed) > 2 * len(self.names) + _SPARE_CHANGES:
            del self._changed[: len(self._changed) - len(self.names)]

    def _fits_of(self, shape: Shape) -> _ShapeFits:
        """Return how many pods of a shape each node takes now."""
        if self._row is not _NO_ROW:
            self._count_row()
        latest = self._latest
        if latest.shape is shape and latest.version == self._version:
            return latest
        fits = self._shapes.get(shape)
        if fits is None:
            most = min(_MOST_SHAPES, max(_LEAST_SHAPES, _MOST_FITS // len(self.names) if self.names else 0))
            if len(self._shapes) >= most:
                del self._shapes[min(self._shapes, key=lambda known: self._shapes[known].version)]
            fits = self._shapes[shape] = _ShapeFits(shape)
        if fits.version != self._version:
            self._bring_up_to_date(fits)
        self._latest = fits
        return fits

    def _bring_up_to_date(self, fits: _ShapeFits) -> None:
        """Look at the nodes that have changed; at all nodes if that is less work."""
        behind, demand, free = self._version - fits.version, fits.shape.demand, self._free
        nodes = fits.nodes if fits.version >= self._resolved else self.allowed(fits.shape.where)
        if behind > len(self.names):
            fits.set_all({node: count_fitting(free[node], demand) for node in bits(nodes)})
        else:
            for node in {*self._changed[-behind:], *bits(nodes ^ fits.nodes)}:
                fits.set_fit(node, count_fitting(free[node], demand) if nodes >> node & 1 else 0)
        fits.nodes, fits.version = nodes, self._version


def count_fitting(free: Amounts, demand: Iterable[tuple[str, int]]) -> int:
    """Return how many times a demand fits into free amounts."""
    least = -1
    for name, amount in demand:
        has = free.get(name, 0)
        if least < 0 or least * amount > has:  # a product costs much less than a quotient
            least = has // amount
            if least <= 0:
                return 0
    return max(least, 0)


def bits(nodes: NodeSet) -> Iterator[int]:
    """Yield the indexes of the nodes of a set, the lowest first."""
    digits = bin(nodes)[:1:-1]
    node = digits.find("1")
    while node >= 0:
        yield node
        node = digits.find("1", node + 1)


def set_of(nodes: Iterable[int]) -> NodeSet:
    """Return the set of the nodes with these indexes."""
    digits = bytearray()
    for node in nodes:
        if node >> 3 >= len(digits):
            digits.extend(bytes((node >> 3) + 1 - len(digits)))
        digits[node >> 3] |= 1 << (node & 7)
    return int.from_bytes(digits, "little")
