"""The depth-first search for the nodes of a gang whose pods differ: one pod after the other, within a number of steps.

The pods of one kind, of which there are most, are not searched: that they find nodes at last is a sum. Of nodes that
are alike one is tried, and a node that was tried in vain is not tried for the alike pods behind.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from queues.placement.gangs import Members, NodeSet, Placed, Shape
from queues.placement.node_room import NodeRoom, bits
from queues.placement.trial import Trial, fill

_STEPS = 1_000
"""The most work. A look at a node is a step for each kind of pods, a further pod one for each node that has pods."""
_DEPTH = 32
"""The most pods that are searched. With more of them, the steps would end far from the first pods."""


def search_pods(room: NodeRoom, members: Sequence[Members], within: NodeSet) -> tuple[Placed, ...] | None:
    """Return nodes for all pods of different members; None if none were found in time."""
    most = max(members, key=lambda one: one.count)
    pods = [one.shape for one in members if one is not most for _ in range(one.count)]
    if len(pods) > _DEPTH:
        return None
    spare = {shape: room.total(shape, within) - count for shape, count in members}
    found = _PodSearch(pods, most).place(0, Trial(room, within), spare, 0)
    if found is None:
        return None
    counts = Counter[tuple[int, Shape]]()
    for node, shape, count in found:
        counts[node, shape] += count
    return tuple((node, shape, count) for (node, shape), count in counts.items())


class _PodSearch:
    """The pods that are searched in their order, the pods that are placed at last, and the steps that are left."""

    def __init__(self, pods: Sequence[Shape], last: Members) -> None:
        self._pods = pods
        self._last = last
        self._steps = _STEPS

    def place(self, at: int, trial: Trial, spare: Mapping[Shape, int], vain: NodeSet) -> tuple[Placed, ...] | None:
        """Return nodes for the pods from one on; None if none were found.

        `spare` is how many more pods of each kind alone find room than there are. `vain` are nodes that are no use.
        """
        if at == len(self._pods):
            return tuple(fill(sorted(trial.takes(self._last.shape).items()), *self._last))
        shape, alike_next, seen = self._pods[at], self._pods[at] in self._pods[at + 1 : at + 2], set()
        self._steps -= trial.touched
        for node in _candidates(trial, shape, vain):
            if self._steps <= 0:
                return None
            self._steps -= len(spare)
            kind = trial.kind(node, spare)
            if kind not in seen:
                seen.add(kind)
                after = trial.with_pod(node, shape)
                left = {one: spare[one] - trial.fit(node, one) + after.fit(node, one) for one in spare}
                left[shape] += 1
                found = self.place(at + 1, after, left, vain if alike_next else 0) if min(left.values()) >= 0 else None
                if found is not None:
                    return (node, shape, 1), *found
            vain |= 1 << node
        return None


def _candidates(trial: Trial, shape: Shape, vain: NodeSet) -> Iterator[int]:
    """Yield the nodes that take a pod of a shape, those that take the fewest first."""
    takes = trial.takes(shape)
    for fit in sorted(takes):
        yield from bits(takes[fit] & ~vain)
