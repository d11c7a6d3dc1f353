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

Who joins or leaves, and a change of weight, must bring neither hoarded credit nor endless debt: then all credits are
cut to +-(W - weight) * (largest cost in the set), and their mean is subtracted. The mean is rounded down: the sum of n
credits is then not 0 but one of 0..n-1, until the next such change takes the remainder along.

Credits are kept relative to a clock (`queues.values.Account`), so that a pick changes one account. Queues of one weight
and one cost gain alike, so their order among each other does not change as turns pass: they share a sorted bucket, and
a turn looks at the buckets' first ones instead of at every queue.
"""

import heapq
from bisect import bisect_left, insort
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from queues.values import Account, Clock


@dataclass(frozen=True, slots=True)
class Bid:
    """A contending queue's claim: its weight and the cost of its next job."""

    weight: int
    cost: int


@dataclass(frozen=True, slots=True)
class _Member:
    bid: Bid
    base: int
    last: int

    @property
    def size(self) -> int:
        return max(self.last, self.bid.cost)


class Ledger:
    """The credits of all queues while picks are made: a working copy, whose changes are read back with `changes`."""

    def __init__(self, clock: Clock, accounts: Mapping[str, Account], bids: Mapping[str, Bid]) -> None:
        """Begin where the store left off (accounts of all queues), with the queues that contend now."""
        self._turns, self._shift = clock.turns, clock.shift
        self._stored = dict(accounts)
        self._touched = set(accounts)
        self._outside = {
            name: Account(base=credit(account, clock), last=account.last) for name, account in accounts.items()
        }
        self._members: dict[str, _Member] = {}
        self._buckets: dict[Bid, list[tuple[int, str]]] = {}
        self._sizes: list[int] = []
        self._weights = self._bases = 0
        for name, bid in bids.items():
            self._enter(name, bid)
        if self._set_differs(clock):
            self._settle()

    @property
    def clock(self) -> Clock:
        """The clock as it stands now."""
        return Clock(turns=self._turns, shift=self._shift, total=self._weights)

    def turn_order(self) -> Iterator[str]:
        """The contending queues, whose turn it is first. Not valid any more after a change."""
        ranked = heapq.merge(*(self._standing(bid) for bid in self._buckets))
        return (name for _, name in ranked)

    def pay(self, name: str) -> None:
        """The queue's next job is picked: all contending queues gain, it pays."""
        member = self._leave(name)
        cost = member.bid.cost
        price = (self._weights + member.bid.weight) * cost
        self._turns += cost
        self._place(name, replace(member, base=member.base - price, last=cost))

    def follow(self, name: str, bid: Bid | None) -> None:
        """A queue's next job is another one (None: it contends no longer)."""
        member = self._leave(name)
        if bid is not None:
            self._place(name, replace(member, bid=bid))
            return
        self._outside[name] = Account(base=credit(self._account(member), self.clock), last=member.last)
        self._settle()

    def changes(self) -> dict[str, Account]:
        """The accounts that differ from those last stored, which they count as from now on."""
        now = {name: self.account(name) for name in sorted(self._touched)}
        changed = {name: account for name, account in now.items() if account != self._stored[name]}
        self._stored.update(changed)
        self._touched.clear()
        return changed

    def account(self, name: str) -> Account:
        """A queue's account now."""
        member = self._members.get(name)
        return self._outside[name] if member is None else self._account(member)

    def _account(self, member: _Member) -> Account:
        return Account(base=member.base, weight=member.bid.weight, last=member.last)

    def _standing(self, bid: Bid) -> Iterator[tuple[int, str]]:
        """One bucket's queues with minus twice their `credit + weight*k - W*k/2` (plus the shift, like all)."""
        gain = 2 * bid.weight * (self._turns + bid.cost) - self._weights * bid.cost
        return ((2 * minus_base - gain, name) for minus_base, name in self._buckets[bid])

    def _set_differs(self, clock: Clock) -> bool:
        stored = {name: account.weight for name, account in self._stored.items() if account.weight}
        present = {name: member.bid.weight for name, member in self._members.items()}
        return stored != present or sum(stored.values()) != clock.total

    def _settle(self) -> None:
        """Cut the credits to the bounds of the present set and subtract their mean."""
        if not self._members:
            return
        for bid in list(self._buckets):
            self._cut(bid, (self._weights - bid.weight) * self._sizes[-1])
        count = len(self._members)
        self._shift += (self._bases + self._weights * self._turns - count * self._shift) // count

    def _cut(self, bid: Bid, bound: int) -> None:
        gain = bid.weight * self._turns - self._shift
        bucket = self._buckets[bid]
        if -bound <= gain - bucket[-1][0] and gain - bucket[0][0] <= bound:
            return
        for _, name in list(bucket):
            member = self._leave(name)
            within = max(-bound, min(member.base + gain, bound))
            self._place(name, replace(member, base=within - gain))

    def _enter(self, name: str, bid: Bid) -> None:
        account = self._outside.pop(name)
        base = account.base - bid.weight * self._turns + self._shift
        self._place(name, _Member(bid, base, account.last))

    def _place(self, name: str, member: _Member) -> None:
        self._members[name] = member
        insort(self._buckets.setdefault(member.bid, []), (-member.base, name))
        insort(self._sizes, member.size)
        self._weights += member.bid.weight
        self._bases += member.base
        self._touched.add(name)

    def _leave(self, name: str) -> _Member:
        member = self._members.pop(name)
        bucket = self._buckets[member.bid]
        del bucket[bisect_left(bucket, (-member.base, name))]
        if not bucket:
            del self._buckets[member.bid]
        del self._sizes[bisect_left(self._sizes, member.size)]
        self._weights -= member.bid.weight
        self._bases -= member.base
        self._touched.add(name)
        return member


def credit(account: Account, clock: Clock) -> int:
    """A queue's credit. Divided by the sum of the contending weights: how much cost it is behind its share."""
    return account.base + account.weight * clock.turns - clock.shift if account.weight else account.base
