"""Smooth weighted round robin: who has waited longest for a turn, measured in cost.

One rule: a pick costs its queue what all contending queues together gain by it, so the sum of the credits stays.

With k the cost of the picked job and W the sum of the contending weights: every contending queue gains weight*k, and
the picked queue pays W*k. With k = 1 this is exactly nginx's algorithm; for weights a=5, b=1, c=1:

    pick   credits + gains   goes   credits
    1        5   1   1        a     -2   1   1
    2        3   2   2        a     -4   2   2
    3        1   3   3        b      1  -4   3
    4        6  -3   4        a     -1  -3   4
    5        4  -2   5        c      4  -2  -2
    6        9  -1  -1        a      2  -1  -1
    7        7   0   0        a      0   0   0

The turn goes to the queue that is furthest behind its share at the middle of its next job: the largest
`credit + weight*k - W*k/2`, ties to the first name. For k = 1 the last term is the same for all. With jobs of mixed
size it kept every prefix within one largest job of the weights' share wherever that was measured; `credit + weight`
did not.

Who joins or leaves, and a change of weight, must bring neither hoarded credit nor endless debt: then credits are cut to
+-(W - weight) * (largest cost in the set), and their mean is subtracted. The mean is rounded down: the sum of n credits
is then not 0 but one of 0..n-1, until the next such change takes the remainder along. What is beyond its bound by no
more than 1/32 of it is left alone: W shrinks with every queue that leaves, and to cut hundreds of credits by a hair
each time made a pick cost milliseconds while ten thousand queues ran out of jobs.

Credits are kept relative to a clock (`queues.values.Account`), so that a pick changes one account. Queues of one weight
and one cost gain alike, so their order among each other does not change as turns pass: they share a line, and a turn
looks at the lines' first ones instead of at every queue.
"""

from collections.abc import Collection

from queues.ledger import Ledger, Line, Member, Turn
from queues.standing import State
from queues.values import Account, Clock

LENIENCE = 32
"""A credit may be beyond its bound by the bound divided by this before it is cut to it."""


class Credits(Ledger):
    """The credits of all queues while picks are made."""

    picker = "swrr"

    def first(self, state: State) -> Turn | None:
        """The queue that is furthest behind at the middle of its next job: the best of the lines' first ones."""
        best: int | None = None
        name = ""
        turns, total = 2 * self._turns, self._weights
        for (weight, cost), line in self._lines.items():
            item = line.first[state]
            if item is not None:
                behind = 2 * item[0] - weight * (turns + 2 * cost) + total * cost
                if best is None or behind < best or (behind == best and item[1] < name):
                    best, name = behind, item[1]
        return None if best is None else (0, best, name)

    def turn(self, name: str) -> Turn:
        """Minus twice its `credit + weight*k - W*k/2` (plus the shift, like all)."""
        member = self._members[name]
        weight, cost, _ = member.bid
        return 0, -2 * member.base - 2 * weight * (self._turns + cost) + self._weights * cost, name

    def refund(self, name: str, cost: int, _weight: int, /) -> None:
        """All contending queues lose what they gained by the pick, and it gets back what it paid."""
        member = self._members.get(name)
        self._turns -= cost
        self._touched.add(name)
        if member is None:
            self._outside[name] += self._weights * cost
        else:
            self._rebase(member, member.base + self._weights * cost)

    def _frozen(self, base: int, weight: int) -> int:
        return base + weight * self._turns - self._shift if weight else base

    def _entering(self, base: int, weight: int) -> int:
        return base - weight * self._turns + self._shift

    def _settle(self, _joined: Collection[str]) -> None:
        """Cut the credits to the bounds of the present set and subtract their mean."""
        largest = max(self._sizes)
        for (weight, _cost), line in list(self._lines.items()):
            bound, gain = (self._weights - weight) * largest, weight * self._turns - self._shift
            far = bound + bound // LENIENCE
            for _, name, _ in list(line.without(gain - far, gain + far)):
                member = self._members[name]
                self._rebase(member, max(-bound, min(member.base + gain, bound)) - gain)
        count = len(self._members)
        self._shift += (self._bases + self._weights * self._turns - count * self._shift) // count

    def _pay(self, member: Member, cost: int) -> None:
        self._turns += cost
        member.base -= self._weights * cost

    def _stand_again(self, member: Member) -> None:
        item = -member.base, member.name, member.bid.group  # in the same line: weight and cost have not changed
        member.line.replace(member.item, item)
        member.item = item

    def _place(self, member: Member) -> tuple[Line, int]:
        return (member.bid.weight, member.bid.cost), -member.base


def credit(account: Account, clock: Clock) -> int:
    """A queue's credit. Divided by the sum of the contending weights: how much cost it is behind its share."""
    return account.base + account.weight * clock.turns - clock.shift if account.weight else account.base
