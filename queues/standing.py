"""Names in the order of a rank, of which whole groups can be set aside at once.

One rule: the first name in a state is found without looking at the names of other states.

Queues whose next jobs ask the pool for the same form a group: if one of them finds no room, none does. A pool that
fills up, or in which room for one job comes free, changes the state of a group and not of its ten thousand queues.
"""

import heapq
from bisect import bisect_left, insort
from collections.abc import Iterator, Mapping
from typing import Literal

State = Literal["open", "waiting", "aside"]
"""Of a group: it may go; it has to wait for room and is owed it; it has to wait and is owed nothing."""

STATES: tuple[State, ...] = ("open", "waiting", "aside")
Item = tuple[int, str, int]
"""Rank, name and group."""


class Standing:
    """Sorted lists, one per group, and per state a heap of their first items."""

    __slots__ = ("_firsts", "_groups", "_states", "first")

    def __init__(self, states: Mapping[int, State]) -> None:
        """`states` belongs to the caller, who says `moved` when a group's state has changed."""
        self.first: dict[State, Item | None] = dict.fromkeys(STATES)
        """The least item of all groups in a state."""
        self._states = states
        self._groups: dict[int, list[Item]] = {}
        self._firsts: dict[State, list[Item]] = {state: [] for state in STATES}

    def __bool__(self) -> bool:
        return bool(self._groups)

    def add(self, item: Item) -> None:
        """Let a name take its place."""
        group = self._groups.setdefault(item[2], [])
        insort(group, item)
        if group[0] is item:
            self._lead(item)

    def discard(self, item: Item) -> None:
        """Let it leave."""
        group = self._groups[item[2]]
        at = bisect_left(group, item)
        del group[at]
        if at:
            return
        if group:
            self._lead(group[0])
        else:
            del self._groups[item[2]]
        state = self._states[item[2]]
        if self.first[state] is item:
            self.first[state] = self._least(state)

    def moved(self, group: int, old: State) -> None:
        """The group's state has changed."""
        if group in self._groups:
            item = self._groups[group][0]
            self._lead(item)
            if self.first[old] is item:
                self.first[old] = self._least(old)

    def without(self, low: int, high: int) -> Iterator[Item]:
        """The items whose rank is below `low` or above `high`."""
        for group in self._groups.values():
            if group[0][0] < low or group[-1][0] > high:
                yield from group[: bisect_left(group, (low, "", 0))]
                yield from group[bisect_left(group, (high + 1, "", 0)) :]

    def _lead(self, item: Item) -> None:
        """The item has become the first of its group."""
        state = self._states[item[2]]
        heap = self._firsts[state]
        heapq.heappush(heap, item)
        first = self.first[state]
        if first is None or item < first:
            self.first[state] = item
        if len(heap) > 4 * len(self._groups) + 64:
            self._firsts[state] = [group[0] for key, group in self._groups.items() if self._states[key] == state]
            heapq.heapify(self._firsts[state])

    def _least(self, state: State) -> Item | None:
        heap = self._firsts[state]
        while heap:
            item = heap[0]
            group = self._groups.get(item[2])
            if group and group[0] is item and self._states[item[2]] == state:
                return item
            heapq.heappop(heap)  # it has left, is not first any more, or its group has changed its state
        return None
