"""Names in the order of a rank, of which whole groups can be set aside at once.

One rule: the first name in a state is found without looking at the names of other states.

Queues whose next jobs ask the pool for the same form a group: if one of them finds no room, none does. A pool that
fills up, or in which room for one job comes free, changes the state of a group and not of its ten thousand queues.
"""

import heapq
from bisect import bisect_left, insort
from collections.abc import Iterable, Mapping
from typing import Literal

State = Literal["open", "waiting", "aside"]
"""Of a group: it may go; it has to wait for room and is owed it; it has to wait and is owed nothing."""

STATES: tuple[State, ...] = ("open", "waiting", "aside")
Item = tuple[int, str, int]
"""Rank, name and group."""


class Standing:
    """Sorted lists, one per group, and per state a heap of their first items."""

    def __init__(self, states: Mapping[int, State]) -> None:
        """`states` belongs to the caller, who says `moved` when a group's state has changed."""
        self._states = states
        self._groups: dict[int, list[Item]] = {}
        self._firsts: dict[State, list[Item]] = {state: [] for state in STATES}

    def __bool__(self) -> bool:
        return bool(self._groups)

    def first(self, state: State) -> Item | None:
        """The least item of all groups in the state."""
        heap = self._firsts[state]
        while heap:
            item = heap[0]
            group = self._groups.get(item[2])
            if group and group[0] is item and self._states[item[2]] == state:
                return item
            heapq.heappop(heap)  # it has left, is not first any more, or its group has changed its state
        return None

    def add(self, item: Item) -> None:
        """Let a name take its place."""
        group = self._groups.setdefault(item[2], [])
        insort(group, item)
        if group[0] is item:
            self._push(item)

    def discard(self, item: Item) -> None:
        """Let it leave."""
        group = self._groups[item[2]]
        at = bisect_left(group, item)
        del group[at]
        if not group:
            del self._groups[item[2]]
        elif at == 0:
            self._push(group[0])

    def moved(self, group: int) -> None:
        """The group's state has changed."""
        if group in self._groups:
            self._push(self._groups[group][0])

    def _push(self, item: Item) -> None:
        state = self._states[item[2]]
        heap = self._firsts[state]
        heapq.heappush(heap, item)
        if len(heap) > 4 * len(self._groups) + 64:
            self._firsts[state] = _heap(each[0] for each in self._groups.values() if self._states[each[0][2]] == state)


def _heap(items: Iterable[Item]) -> list[Item]:
    heap = list(items)
    heapq.heapify(heap)
    return heap
