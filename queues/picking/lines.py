"""The order of turns: contending queues by weight and by the cost of their next jobs.

One rule: queues of one weight and one cost keep their order among each other while other queues are served. So a turn
compares the first queue of each line instead of every queue.
"""

from typing import NamedTuple

from queues.picking.grouped_index import GroupedIndex, State


class Bid(NamedTuple):
    """What a contending queue asks for: its weight, the cost of its next job, and its group.

    The queues of one group ask the pool for the same room."""

    weight: int
    cost: int
    group: int = 0


Line = tuple[int, int]
"""Weight and cost."""


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
