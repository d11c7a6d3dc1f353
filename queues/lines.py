"""The order of turns: contending queues by weight and by the cost of their next jobs.

One rule: queues of one weight and one cost do not change their order among each other while other queues are served, so
that a turn looks at the first queue of each line instead of at every queue.
"""

from typing import NamedTuple

from queues.standing import Item, Standing, State


class Bid(NamedTuple):
    """A contending queue's claim: its weight, the cost of its next job, and the group of queues that ask for the same
    room."""

    weight: int
    cost: int
    group: int = 0


Line = tuple[int, int]
"""Weight and cost."""


class Lines:
    """The contending queues; within a line, the queue with the least rank is first."""

    __slots__ = ("_queues", "_states", "blocked", "of")

    def __init__(self) -> None:
        self.of: dict[Line, Standing] = {}
        self.blocked: set[int] = set()
        """The groups that are not open."""
        self._states: dict[int, State] = {}
        self._queues = 0

    def add(self, name: str, bid: Bid, rank: int) -> Item:
        """Let a queue take its place; the place."""
        self._states.setdefault(bid.group, "open")
        line = self.of.get(bid[:2])
        if line is None:
            self._clear()
            line = self.of[bid[:2]] = Standing(self._states)
        item = rank, name, bid.group
        line.add(item)
        self._queues += 1
        return item

    def discard(self, bid: Bid, item: Item) -> None:
        """Let a queue leave its place."""
        self.of[bid[:2]].discard(item)
        self._queues -= 1

    def replace(self, bid: Bid, old: Item, rank: int) -> Item:
        """Let a queue take another place in its line; the place."""
        item = rank, old[1], old[2]
        self.of[bid[:2]].replace(old, item)
        return item

    def move(self, group: int, state: State) -> None:
        """Change a group's state."""
        old = self._states[group]
        self._states[group] = state
        if state == "open":
            self.blocked.discard(group)
        else:
            self.blocked.add(group)
        for line in self.of.values():
            line.moved(group, old)

    def _clear(self) -> None:
        """Forget empty lines, once most are."""
        if len(self.of) > 2 * self._queues + 16:
            self.of = {line: standing for line, standing in self.of.items() if standing}
