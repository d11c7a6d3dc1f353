"""The order of turns: contending queues by weight and by the cost of their next jobs.

One rule: queues of one weight and one cost do not change their order among each other while other queues are served, so
that a turn looks at the first queue of each line instead of at every queue.
"""

from typing import NamedTuple

from queues.picking.grouped_index import Standing, State


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

    __slots__ = ("_states", "blocked", "of")

    def __init__(self) -> None:
        self.of: dict[Line, Standing] = {}
        self.blocked: set[int] = set()
        """The groups that are not open."""
        self._states: dict[int, State] = {}

    def line(self, bid: Bid, queues: int) -> Standing:
        """The line in which a queue stands; `queues` is how many there are at most."""
        self._states.setdefault(bid.group, "open")
        line = self.of.get(bid[:2])
        if line is None:
            if len(self.of) > 2 * queues + 16:
                self.of = {key: standing for key, standing in self.of.items() if standing}
            line = self.of[bid[:2]] = Standing(self._states)
        return line

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
