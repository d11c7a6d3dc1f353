"""Decides which nodes the pods of a gang get.

Alike pods are decided exactly: each node takes a number of them, and it is enough if the sum is. The nodes that take
the fewest are filled first (best fit), so that what stays free is on few nodes.

Different pods share nodes, so they are decided by a search that may miss an assignment:

1. Each kind of pod alone has to find room.
2. The kinds are placed one after the other, the largest first, each by best fit. Then other orders are tried.
3. A depth-first search places single pods, within a number of steps (`queues.placement.pod_search`).

Which of the possible assignments a gang gets is a question of its own (`place`): the one that leaves few fragments.
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import islice, permutations

from queues.placement.gangs import EVERY, Members, NodeSet, Placed, Shape, merged
from queues.placement.gradient import Gradient
from queues.placement.node_room import NodeRoom
from queues.placement.pod_search import search_pods
from queues.placement.trial import Trial, fill

Assignment = tuple[Placed, ...]
"""What nodes get. A node occurs once for each shape that it gets."""

_ORDERS = 6
"""The most orders of members that are tried."""
_WORK = 6_000
"""The most work of all orders but the first: in an assignment, each pod is a step for each kind of pods."""


def assign(room: NodeRoom, members: tuple[Members, ...], within: NodeSet = EVERY) -> Assignment | None:
    """Return nodes of a set for all pods of a gang; None if none were found. Equal questions have equal answers."""
    if len(members) == 1:
        shape, count = members[0]
        if room.total(shape, within) < count:
            return None
        takes = room.takes(shape)
        return tuple(fill(((fit, takes[fit] & within) for fit in sorted(takes)), shape, count))
    return room.answer((members, within), lambda: _assign_mixed(room, members, within))


def place(
    room: NodeRoom, gradient: Gradient | None, members: tuple[Members, ...], within: NodeSet = EVERY
) -> Assignment | None:
    """Return nodes of a set for all pods of a gang that goes; None if `assign` finds none. Of the assignments, it is
    one that leaves few fragments, by a gradient if there is one."""
    if gradient is None:
        return assign(room, members, within)
    wanted = merged(members)
    if not fits(room, wanted, within):
        return None
    if len(wanted) == 1:
        ranked = ((fit, nodes & within) for (_, fit), nodes in gradient.ranked(wanted[0].shape))
        return tuple(fill(ranked, *wanted[0]))
    trial = Trial(room, within)
    placed = _place_all(trial, _largest_first(room, wanted), lambda shape: trial.ranked(shape, gradient))
    if sum(count for _, _, count in placed) == sum(count for _, count in wanted):
        return placed
    return assign(room, wanted, within)


def fits(room: NodeRoom, members: tuple[Members, ...], within: NodeSet = EVERY) -> bool:
    """Return whether `assign` finds nodes for all pods of a gang."""
    if len(members) == 1:
        shape, count = members[0]
        return room.total(shape, within) >= count
    return assign(room, members, within) is not None


def count_placed(room: NodeRoom, members: tuple[Members, ...], within: NodeSet = EVERY) -> int:
    """Return the most pods of a gang for which the search of `assign` finds nodes."""
    wanted = merged(members)
    pods = sum(count for _, count in wanted)
    if len(wanted) == 1:
        return min(room.total(wanted[0].shape, within), pods)
    if assign(room, members, within) is not None:
        return pods
    tries = (_place_in_order(room, order, within) for order in orders(room, wanted, pods))
    return max(sum(count for _, _, count in placed) for placed in tries)


def _assign_mixed(room: NodeRoom, members: tuple[Members, ...], within: NodeSet) -> Assignment | None:
    wanted = merged(members)
    if len(wanted) == 1:
        return assign(room, wanted, within)
    if not wanted:
        return ()
    if any(room.total(shape, within) < count for shape, count in wanted):
        return None
    pods = sum(count for _, count in wanted)
    for order in orders(room, wanted, pods):
        placed = _place_in_order(room, order, within)
        if sum(count for _, _, count in placed) == pods:
            return placed
    return search_pods(room, _largest_first(room, wanted), within)


def orders(room: NodeRoom, members: tuple[Members, ...], steps: int) -> Iterator[tuple[Members, ...]]:
    """Return some orders of members, the largest first at first; fewer if each member takes many steps to place."""
    most = max(1, min(_ORDERS, _WORK // max(1, steps * len(members))))
    return islice(permutations(_largest_first(room, members)), most)


def _largest_first(room: NodeRoom, members: tuple[Members, ...]) -> list[Members]:
    """Return members in the order of the largest part that a pod takes of the largest node."""
    return sorted(members, key=lambda one: (-room.part_of_largest(one.shape), one.shape.demand, one.shape.where))


def _place_in_order(room: NodeRoom, members: tuple[Members, ...], within: NodeSet) -> Assignment:
    """Return nodes for as many pods as find one if members are placed one after the other, each by best fit."""
    trial = Trial(room, within)
    return _place_all(trial, members, lambda shape: sorted(trial.takes(shape).items()))


def _place_all(
    trial: Trial, members: Iterable[Members], order: Callable[[Shape], Iterable[tuple[int, NodeSet]]]
) -> Assignment:
    """Place members one after the other, each in the order of nodes for its shape."""
    placed: list[Placed] = []
    for shape, count in members:
        found = fill(order(shape), shape, count)
        for one in found:
            trial.place(*one)
        placed += found
    return tuple(placed)
