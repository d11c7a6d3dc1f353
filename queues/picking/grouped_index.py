"""Names in the order of a rank, in groups that change their state as a whole.

One rule: the first name in a state is found without a look at the names in other states.

Queues whose next jobs request the same room from the pool form a group: if one of these jobs finds no room, no other
job does. When a pool fills up, or room for one job becomes free, the state of a group changes, not the states of its
ten thousand queues.
"""

import heapq
from bisect import bisect_left, insort
from collections.abc import Mapping
from typing import Literal, NamedTuple

State = Literal["open", "waiting", "aside"]
"""The state of a group.

- open: its queues may be picked;
- waiting: its queues wait for room, and the pool may reserve room for them;
- aside: its queues wait for room, and the pool reserves no room for them.
"""

STATES: tuple[State, ...] = ("open", "waiting", "aside")
Item = tuple[int, str, int]
"""Rank, name and group."""
_HEAP_FROM = 2
"""The index has heaps if it has this number of groups or more."""


Line = tuple[int, int]
"""Weight and cost."""


class GroupedIndex:
    """A sorted list per group, and per state a heap of the lists' first items. A single group needs no heap."""

    __slots__ = ("_firsts", "_groups", "_states", "first")

    def __init__(self, states: Mapping[int, State]) -> None:
        """`states` belongs to the caller, who calls `state_changed` after each change."""
        self.first: dict[State, Item | None] = dict.fromkeys(STATES)
        """The least item of all groups in each state."""
        self._states = states
        self._groups: dict[int, list[Item]] = {}
        self._firsts: dict[State, list[Item]] = {state: [] for state in STATES}

    def __bool__(self) -> bool:
        return bool(self._groups)

    def add(self, item: Item) -> None:
        """Add an item to its group."""
        group = self._groups.get(item[2])
        if group is None:
            group = self._groups[item[2]] = []
            if len(self._groups) == _HEAP_FROM:
                self._build_heaps()
        insort(group, item)
        if group[0] is item:
            self._push_first(item)

    def discard(self, item: Item) -> None:
        """Remove an item from its group."""
        group = self._groups[item[2]]
        index = bisect_left(group, item)
        del group[index]
        if index:
            return
        if group:
            self._push_first(group[0])
        else:
            del self._groups[item[2]]
        self._drop_first(item, self._states[item[2]])

    def replace(self, old: Item, new: Item) -> None:
        """Give a name another rank in its group."""
        group = self._groups[old[2]]
        was_first = group[0] is old
        del group[0 if was_first else bisect_left(group, old)]
        insort(group, new)
        first = group[0]
        if len(self._groups) < _HEAP_FROM:
            self.first[self._states[new[2]]] = first
            return
        if was_first or first is new:
            self._push_first(first)
        if was_first:
            self._drop_first(old, self._states[old[2]])

    def state_changed(self, group: int, old: State) -> None:
        """Move a group whose state has changed from `old`."""
        if group in self._groups:
            item = self._groups[group][0]
            self._push_first(item)
            self._drop_first(item, old)

    def _push_first(self, item: Item) -> None:
        """Note that an item is now the first of its group."""
        state = self._states[item[2]]
        if len(self._groups) < _HEAP_FROM:
            self.first[state] = item
            return
        heap = self._firsts[state]
        heapq.heappush(heap, item)
        first = self.first[state]
        if first is None or item < first:
            self.first[state] = item
        if len(heap) > 4 * len(self._groups) + 64:
            self._build_heaps()

    def _build_heaps(self) -> None:
        """Build the heaps from the groups."""
        for state in STATES:
            self._firsts[state] = [
                group[0] for key, group in self._groups.items() if group and self._states[key] == state
            ]
            heapq.heapify(self._firsts[state])

    def _drop_first(self, item: Item, state: State) -> None:
        """Note that an item has left a state, or is no longer the first of its group."""
        if self.first[state] is item:
            self.first[state] = self._least(state)

    def _least(self, state: State) -> Item | None:
        if len(self._groups) < _HEAP_FROM:
            return next((group[0] for key, group in self._groups.items() if self._states[key] == state), None)
        heap = self._firsts[state]
        while heap:
            item = heap[0]
            group = self._groups.get(item[2])
            if group and group[0] is item and self._states[item[2]] == state:
                return item
            heapq.heappop(heap)  # the item has left, is not first any more, or its group has changed its state
        return None


class Bid(NamedTuple):
    """What a contending queue asks for: its weight, the cost of its next job, and its group.

    The queues of one group ask the pool for the same room."""

    weight: int
    cost: int
    group: int = 0


class Lines:
    """The contending queues. Within a line the queue with the least base is first."""

    __slots__ = ("_states", "by_bid", "groups_without_room")

    def __init__(self) -> None:
        self.by_bid: dict[Line, GroupedIndex] = {}
        self.groups_without_room: set[int] = set()
        """The groups whose state is not open."""
        self._states: dict[int, State] = {}

    def line(self, bid: Bid, queues: int) -> GroupedIndex:
        """Return the line of a queue's bid. `queues` is the largest possible number of queues."""
        self._states.setdefault(bid.group, "open")
        line = self.by_bid.get(bid[:2])
        if line is None:
            if len(self.by_bid) > 2 * queues + 16:
                self.by_bid = {key: index for key, index in self.by_bid.items() if index}
            line = self.by_bid[bid[:2]] = GroupedIndex(self._states)
        return line

    def set_state(self, group: int, state: State) -> None:
        """Change a group's state."""
        old = self._states[group]
        self._states[group] = state
        if state == "open":
            self.groups_without_room.discard(group)
        else:
            self.groups_without_room.add(group)
        for line in self.by_bid.values():
            line.state_changed(group, old)
