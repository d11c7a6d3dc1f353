"""The depth-first search for the nodes of a gang whose pods differ: one pod after the other, within a number of steps.

The pods of one kind, of which there are most, are not searched: that they find nodes at last is a sum. Of nodes that
are alike one is tried, and a node that was tried in vain is not tried for the alike pods behind.
"""

from collections import Counter
from collections.abc import Iterator, Sequence

from queues.placement.gangs import Members, NodeSet, Placed, Shape
from queues.placement.node_room import NodeRoom, bits
from queues.placement.trial import Trial, fewest_first

_STEPS = 2_000
"""The most work: a look at a node is a step for each kind of pods."""
_DEPTH = 100
"""The most pods that are searched. With more of them, the steps would end far from the first pods."""


def search_pods(room: NodeRoom, members: Sequence[Members], within: NodeSet) -> tuple[Placed, ...] | None:
    """Return nodes for all pods of different members; None if none were found in time."""
    most = max(members, key=lambda one: one.count)
    pods = [one.shape for one in members if one is not most for _ in range(one.count)]
    if len(pods) > _DEPTH:
        return None
    search = _PodSearch(Trial(room, within), pods, most)
    return search.placed() if search.place(0, 0) else None


class _PodSearch:
    """The pods that are searched in their order, those that have a node, and the steps that are left."""

    def __init__(self, trial: Trial, pods: Sequence[Shape], last: Members) -> None:
        self._trial = trial
        self._pods = pods
        self._last = last
        self._behind = [Counter(pods[at:]) + Counter({last.shape: last.count}) for at in range(len(pods) + 1)]
        """The pods that have no node yet, by how many have one."""
        self._totals = {shape: trial.total(shape) for shape in self._behind[0]}
        self._nodes: list[int] = []
        self._steps = _STEPS

    def place(self, at: int, vain: NodeSet) -> bool:
        """Place the pods from one on, and return whether that was possible. `vain` are nodes that are no use to it."""
        if at == len(self._pods):
            return True
        shape = self._pods[at]
        alike_next = at + 1 < len(self._pods) and self._pods[at + 1] == shape
        seen = set()
        for node in self._candidates(shape, vain):
            if self._steps <= 0:
                return False
            self._steps -= len(self._totals)
            vain |= 1 << node
            kind = self._trial.kind(node, self._behind[at])
            if kind in seen:
                continue
            seen.add(kind)
            self._put(node, shape, 1)
            self._nodes.append(node)
            if self._may_fit(at + 1) and self.place(at + 1, vain & ~(1 << node) if alike_next else 0):
                return True
            self._nodes.pop()
            self._put(node, shape, -1)
        return False

    def placed(self) -> tuple[Placed, ...]:
        """Return what nodes get, the last members included."""
        counts = Counter(zip(self._nodes, self._pods, strict=True))
        searched = [(node, shape, pods) for (node, shape), pods in counts.items()]
        return (*searched, *fewest_first(self._trial.takes(self._last.shape), *self._last))

    def _candidates(self, shape: Shape, vain: NodeSet) -> Iterator[int]:
        """Yield the nodes that take a pod of a shape, those that take the fewest first."""
        takes = self._trial.takes(shape)
        for fit in sorted(takes):
            yield from bits(takes[fit] & ~vain)

    def _put(self, node: int, shape: Shape, times: int) -> None:
        for one in self._totals:
            self._totals[one] -= self._trial.fit(node, one)
        self._trial.place(node, shape, times)
        for one in self._totals:
            self._totals[one] += self._trial.fit(node, one)

    def _may_fit(self, at: int) -> bool:
        """Return whether of the pods from one on, each kind alone finds nodes. At the end this decides the last."""
        return all(self._totals[shape] >= count for shape, count in self._behind[at].items())
