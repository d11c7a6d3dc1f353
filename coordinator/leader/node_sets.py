"""The nodes that meet each place condition, kept up to date node by node.

One rule: a change of one node costs one look at it for each known condition, and no look at other nodes.
"""

import threading
from dataclasses import dataclass, field

from coordinator.cache.node_views import NodeView
from crds.node_requirements import PlaceCondition
from queues.placement.gangs import NodeSet
from queues.placement.node_room import Domains, set_of

_CONDITIONS = 1_024
"""The most conditions that are known at a time; all are forgotten before there would be more."""


@dataclass(slots=True)
class NodeSets:
    """Sets of nodes by their indexes in a room. Copies of the places ask from other threads."""

    ready: NodeSet = 0
    """The nodes that take new pods."""
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _nodes: dict[int, NodeView] = field(default_factory=dict)
    _indexes: dict[str, int] = field(default_factory=dict)
    _conditions: dict[str, tuple[PlaceCondition, NodeSet]] = field(default_factory=dict)

    def note(self, index: int, node: NodeView | None) -> None:
        """Note what a node is now; None: it is gone."""
        bit = 1 << index
        with self._lock:
            if node is None:
                self._nodes.pop(index, None)
            else:
                self._nodes[index], self._indexes[node.name] = node, index
            self.ready = self.ready | bit if node is not None and node.ready else self.ready & ~bit
            for where, (condition, nodes) in self._conditions.items():
                meets = node is not None and condition.allows(node.name, node.labels, node.taints)
                if meets != bool(nodes & bit):
                    self._conditions[where] = condition, nodes ^ bit

    def allowed(self, where: str) -> NodeSet:
        """Return the nodes that take pods with a condition now. Nodes that the pods avoid are left out only if others
        remain."""
        with self._lock:
            condition, nodes = self._meeting(where)
            found = nodes & self.ready
            avoided = (self._indexes.get(name) for name in condition.avoided)
            others = found & ~sum(1 << index for index in set(avoided) if index is not None)
        return others or found

    def ever_allowed(self, where: str) -> NodeSet:
        """Return the nodes on which pods with a condition may run if all nodes take pods."""
        with self._lock:
            return self._meeting(where)[1]

    def domains(self, label: str) -> Domains:
        """Return the nodes that have a label, by its values."""
        found: dict[str, list[int]] = {}
        with self._lock:
            for index, node in self._nodes.items():
                if value := node.labels.get(label):
                    found.setdefault(value, []).append(index)
        return {value: set_of(indexes) for value, indexes in found.items()}

    def _meeting(self, where: str) -> tuple[PlaceCondition, NodeSet]:
        found = self._conditions.get(where)
        if found is None:
            condition, nodes = PlaceCondition.parse(where), 0
            for index, node in self._nodes.items():
                if condition.allows(node.name, node.labels, node.taints):
                    nodes |= 1 << index
            if len(self._conditions) >= _CONDITIONS:
                self._conditions.clear()
            found = self._conditions[where] = condition, nodes
        return found
