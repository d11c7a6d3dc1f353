"""The nodes of the pool as people see them: a row for each shape of nodes, with what is free there and in which pieces.

One rule: pure, and nothing names a node: who may ask a coordinator may not always list nodes.

Room is in fragments where it is free, and a pod that takes a whole node of this shape cannot use it. Only the main
resource of a shape is counted: its GPUs (`*/gpu`), or cpu if it has none. Of cpu, the pods of others (a node's daemons)
leave the whole node.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from coordinator.cache.node_views import NodeFree
from coordinator.query import figures
from coordinator.query.questions import Document
from crds.resources import quantities
from crds.resources.amounts import PODS, Amounts, increase

Source = Literal["leader", "replica"]
PoolKind = Literal["nodes", "numbers", "none"]
CPU, MEMORY = "cpu", "memory"
GPUS = "/gpu"
"""The end of the names of whole GPUs, of any vendor."""
_UNITS = {CPU: 1000, MEMORY: 2**30}
"""Amounts are shown in whole cores and GiB, so that nodes which differ by less are alike."""
MESSAGES: dict[PoolKind, str] = {
    "nodes": "the cluster has no node",
    "numbers": "the setting pool has the size of the pool in numbers: nodes are not looked at",
    "none": "the setting pool is none: the pool has no limit, and nodes are not looked at",
}
"""Why there are no rows, by the kind of the pool."""


@dataclass(frozen=True, slots=True)
class NodeShape:
    """What alike nodes offer: GPUs, cpu and memory."""

    amounts: tuple[tuple[str, int], ...]
    """By resource name, the GPUs first."""

    @property
    def main(self) -> str:
        """The resource by which fragments are counted."""
        return self.amounts[0][0]


def fragments(nodes: Iterable[NodeFree]) -> dict[str, int]:
    """Return what is free in fragments, by the main resource of each shape."""
    total: dict[str, int] = {}
    for shape, alike in _by_shape(nodes).items():
        increase(total, {shape.main: _fragments(shape.main, alike)})
    return total


def document(kind: PoolKind, nodes: Iterable[NodeFree], source: Source) -> Document:
    """Return the document of the pool. `source` tells whose knowledge it is: the leader's, or that of a coordinator
    which does not lead."""
    items = [_row(shape, alike) for shape, alike in sorted(_by_shape(nodes).items(), key=_largest_first)]
    return {"pool": kind, "source": source, "items": items, "message": "" if items else MESSAGES[kind]}


def _by_shape(nodes: Iterable[NodeFree]) -> dict[NodeShape, list[NodeFree]]:
    found: dict[NodeShape, list[NodeFree]] = defaultdict(list)
    for each in nodes:
        found[_shape(each.node.allocatable)].append(each)
    return found


def _shape(allocatable: Amounts) -> NodeShape:
    gpus = [(name, amount) for name, amount in allocatable.items() if name.endswith(GPUS) and amount > 0]
    gpus.sort(key=lambda gpu: (-gpu[1], gpu[0]))
    rest = ((name, _rounded(name, allocatable.get(name, 0))) for name in (CPU, MEMORY))
    return NodeShape((*gpus, *rest))


def _largest_first(item: tuple[NodeShape, Sequence[NodeFree]]) -> tuple[bool, list[int], str]:
    shape = item[0]
    return shape.main == CPU, [-amount for _, amount in shape.amounts], shape.main


def _rounded(name: str, amount: int) -> int:
    """Return an amount in whole cores or GiB, rounded down; an amount of less than one as it is."""
    unit = _UNITS.get(name, 1)
    return amount - amount % unit if amount >= unit else max(0, amount)


def _row(shape: NodeShape, alike: Sequence[NodeFree]) -> Document:
    ready = [each for each in alike if each.node.ready]
    names = [name for name, _ in shape.amounts]
    largest, takers = _largest_pod(shape, ready)
    return {
        "shape": figures.format_amounts(dict(shape.amounts)),
        "resource": shape.main,
        "nodes": len(alike),
        "ready": len(ready),
        "capacity": _sums(names, alike, lambda each, name: each.node.allocatable.get(name, 0)),
        "free": _sums(names, ready, lambda each, name: each.free.get(name, 0)),
        "largestPod": figures.format_amounts(largest),
        "largestPodNodes": takers,
        "fragments": _format(shape.main, _fragments(shape.main, alike)),
    }


def _sums(names: Iterable[str], nodes: Sequence[NodeFree], of: Callable[[NodeFree, str], int]) -> dict[str, str]:
    return {name: _format(name, sum(max(0, of(each, name)) for each in nodes)) for name in names}


def _format(name: str, amount: int) -> str:
    return quantities.format_amount(name, _rounded(name, amount))


def _takes_pods(each: NodeFree) -> bool:
    return all(each.free.get(name, 0) > 0 for name in (CPU, MEMORY, PODS))


def _largest_pod(shape: NodeShape, ready: Iterable[NodeFree]) -> tuple[Amounts, int]:
    """Return the largest pod that a node takes now, and how many nodes take it: the most of the main resource, and of
    the others what each of these nodes has."""
    open_nodes = [each for each in ready if _takes_pods(each) and each.free.get(shape.main, 0) > 0]
    if not open_nodes:
        return {}, 0
    most = _rounded(shape.main, max(each.free[shape.main] for each in open_nodes))
    takers = [each for each in open_nodes if each.free[shape.main] >= most]
    least = {name: _rounded(name, min(each.free.get(name, 0) for each in takers)) for name, _ in shape.amounts}
    return {name: amount for name, amount in least.items() if amount > 0}, len(takers)


def _fragments(main: str, alike: Iterable[NodeFree]) -> int:
    ready = (each for each in alike if each.node.ready)
    return sum(max(0, each.free.get(main, 0)) for each in ready if not _takes_whole_node(main, each))


def _takes_whole_node(main: str, each: NodeFree) -> bool:
    """Return whether a node takes a pod that asks for all of its main resource."""
    whole = each.node.allocatable.get(main, 0) - (each.foreign.get(main, 0) if main == CPU else 0)
    return _takes_pods(each) and each.free.get(main, 0) >= whole
