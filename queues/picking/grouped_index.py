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
_TWO = 2
"""From so many groups on there are heaps."""


class Standing:
    """Sorted lists, one per group, and per state a heap of their first items; a group that is alone needs no heap."""

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
        group = self._groups.get(item[2])
        if group is None:
            group = self._groups[item[2]] = []
            if len(self._groups) == _TWO:
                self._heap_up()
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
        self._no_longer(item, self._states[item[2]])

    def replace(self, old: Item, new: Item) -> None:
        """Let a name take another place in its group."""
        group = self._groups[old[2]]
        leads = group[0] is old
        del group[0 if leads else bisect_left(group, old)]
        insort(group, new)
        first = group[0]
        if len(self._groups) < _TWO:
            self.first[self._states[new[2]]] = first
            return
        if leads or first is new:
            self._lead(first)
        if leads:
            self._no_longer(old, self._states[old[2]])

    def moved(self, group: int, old: State) -> None:
        """The group's state has changed."""
        if group in self._groups:
            item = self._groups[group][0]
            self._lead(item)
            self._no_longer(item, old)

    def without(self, low: int, high: int) -> Iterator[Item]:
        """The items whose rank is below `low` or above `high`."""
        for group in self._groups.values():
            if group[0][0] < low or group[-1][0] > high:
                yield from group[: bisect_left(group, (low, "", 0))]
                yield from group[bisect_left(group, (high + 1, "", 0)) :]

    def _lead(self, item: Item) -> None:
        """The item has become the first of its group."""
        state = self._states[item[2]]
        if len(self._groups) < _TWO:
            self.first[state] = item
            return
        heap = self._firsts[state]
        heapq.heappush(heap, item)
        first = self.first[state]
        if first is None or item < first:
            self.first[state] = item
        if len(heap) > 4 * len(self._groups) + 64:
            self._heap_up()

    def _heap_up(self) -> None:
        """Make the heaps anew."""
        for state in STATES:
            self._firsts[state] = [
                group[0] for key, group in self._groups.items() if group and self._states[key] == state
            ]
            heapq.heapify(self._firsts[state])

    def _no_longer(self, item: Item, state: State) -> None:
        """The item has left the state, or is not the first of its group any more."""
        if self.first[state] is item:
            self.first[state] = self._least(state)

    def _least(self, state: State) -> Item | None:
        if len(self._groups) < _TWO:
            return next((group[0] for key, group in self._groups.items() if self._states[key] == state), None)
        heap = self._firsts[state]
        while heap:
            item = heap[0]
            group = self._groups.get(item[2])
            if group and group[0] is item and self._states[item[2]] == state:
                return item
            heapq.heappop(heap)  # it has left, is not first any more, or its group has changed its state
        return None
