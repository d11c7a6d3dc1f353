"""Whose turn it is: smooth weighted round robin by cost, in which a queue keeps its place while it is away.

One rule: a queue that is ahead of its share stays in the accounts, whether it contends or not, until the service of the
other queues has made it even.

The members are the queues that contend, and those that do not but are ahead. `base` is what a member was served; B is
the sum of the bases, W the sum of the weights. A member of weight w should have been served w*B/W, so it is behind its
share by `w*B/W - base`, its lag. The lags sum to 0, whatever the bases are. A pick of cost k adds k to one base: every
member gains w*k/W, and the picked queue pays k. Where every cost is 1 this is exactly nginx's algorithm, whose credits
are W times the lags. For weights a=5, b=1, c=1:

    pick   credits + gains   goes   credits
    1        5   1   1        a     -2   1   1
    2        3   2   2        a     -4   2   2
    3        1   3   3        b      1  -4   3
    4        6  -3   4        a     -1  -3   4
    5        4  -2   5        c      4  -2  -2
    6        9  -1  -1        a      2  -1  -1
    7        7   0   0        a      0   0   0

The turn goes to the queue that is furthest behind at the middle of its next job: the largest `lag + w*k/W - k/2`, ties
to the first name. For k = 1 the last term is the same for all.

Between two picks any number of queues may come and go; only when the next turn is taken does it count which contend:

- A queue that comes begins even: with the base that makes its lag 0.
- A queue that leaves while it is ahead remains a member that cannot be picked, and goes when its lag has reached 0. If
  it returns before, it goes on where it stands. So leaving never forgives a debt.
- A queue that leaves while it is behind goes at once. What it was behind is not kept: B/W rises, so that the members
  that stay get it by weight.
- A queue whose weight is changed keeps its lag.

No queue is ahead of its fluid share by more than one largest job, whatever any queue does. For members that do not
contend are ahead, so the lags of those that contend sum to 0 or more; the picked queue has the largest
`lag + w*k/W - k/2` of all, so it has at least minus half of a largest job; and after the pick its lag is that less k/2.

A contending queue for whose next job there is no room is not picked, and its lag grows without this bound, while the
others get ever further ahead. Where a pick brings a queue more than 3/2 of the largest job ahead, the lags of queues
that wait for room are cut to 3/2 of it, and the others get the rest by weight: so their order among each other stays. A
picked queue's lag counts as 3/2 of the largest job at most. Where there is room for every job no lag was seen to reach
that, unless weights are multiplied while queues contend.

Each pick changes one account, but for those cuts. Bases are whole numbers of 1/UNIT, rounded up where a queue joins or
its weight is changed, so that such a queue gains nothing by it, and exact otherwise.
"""

import heapq
from collections.abc import Mapping
from dataclasses import dataclass

from queues.picking.grouped_index import Item, Standing, State
from queues.picking.lines import Bid, Lines
from queues.values import LAW, UNTOUCHED, Account, Clock

Turn = tuple[int, str]
"""A queue's place in the order of turns, the first the least, and its name; valid until the next change."""
UNIT = 1 << 16
"""What a cost of 1 is in a base."""
_BOUND = 3 * UNIT // 2
"""Times the largest job, how large the lag of a queue may be that waits for room."""
BLOCKED: tuple[State, ...] = ("waiting", "aside")
"""The states of queues for whose next jobs there is no room."""
_FINE = 64
"""Bits of the order in which debts end. Two different quotients of weights up to 10**6 differ by more than 2**-64."""


@dataclass(slots=True)
class Member:
    """A queue that contends, or that is ahead of its share."""

    name: str
    weight: int
    """The weight with which it has counted since the last turn; 0: it joins with the next one."""
    base: int
    largest: int
    """The largest job it was picked with since it was last even or behind."""
    bid: Bid | None = None
    """None: it does not contend."""
    size: int = 0
    """The larger of `largest` and the cost of its next job."""
    line: Standing | None = None
    """Where it stands, with `item`, while it contends."""
    item: Item = (0, "", 0)


class Ledger:
    """A working copy of the accounts of all queues, while picks are made."""

    def __init__(self, clock: Clock, accounts: Mapping[str, Account]) -> None:
        """Begin where the store left off. What another version of this algorithm wrote does not count."""
        self._stored = dict(accounts)
        self._touched: set[str] = set()
        if clock.law != LAW:
            self._touched, accounts = set(accounts), {}
        self._members: dict[str, Member] = {}
        self._sizes: dict[int, int] = {}
        """How many members have a size."""
        self._served = self._weights = 0
        for name, (base, weight, largest) in accounts.items():
            if weight:
                self._members[name] = Member(name, weight, base, largest, size=largest)
                self._sizes[largest] = self._sizes.get(largest, 0) + 1
                self._served += base
                self._weights += weight
        self._moved = set(self._members)
        """The members that contend now but did not at the last turn, or the reverse, or with another weight."""
        self._debts: list[tuple[int, str]] = []
        """A heap of the members that do not contend, by when they are even."""
        self._even_at: dict[str, int] = {}
        """The entries of the heap that are valid."""
        self._lines = Lines()

    @property
    def clock(self) -> Clock:
        """The clock as it stands now."""
        return Clock._make((self._served, self._weights, LAW))

    @property
    def unsettled(self) -> bool:
        """Whether other queues contend, or with other weights, than at the last pick."""
        return bool(self._moved)

    @property
    def blocked(self) -> set[int]:
        """The groups that are not open."""
        return self._lines.blocked

    def move(self, group: int, state: State) -> None:
        """Change a group's state."""
        self._lines.move(group, state)

    def cost(self, name: str) -> int:
        """What a contending queue's next job costs."""
        return _claim(self._members[name]).cost

    def bid(self, name: str, bid: Bid | None) -> None:
        """What a queue's next job asks for; None: the queue does not contend."""
        member = self._members.get(name)
        if member is None:
            if bid is None:
                return
            member = self._new(name, self._even(bid.weight))
        before = member.bid
        if bid == before:
            return
        if member.line is not None:
            member.line.discard(member.item)
        member.bid = bid
        self._resize(member)
        if before is None or bid is None or bid.weight != before.weight:
            self._note(member)
        if bid is not None:
            member.line = self._lines.line(bid, len(self._members))
            member.item = member.base, name, bid.group
            member.line.add(member.item)
        else:
            member.line = None
            if not member.weight:
                self._forget(member)

    # Turns

    def settle(self) -> None:
        """A turn comes: joining, leaving and changes of weight since the last one count from now on."""
        members = [self._members[name] for name in self._moved]
        self._touched |= self._moved
        self._moved = set()
        served, weights = self._served, self._weights
        for member in members:
            if member.bid is None:
                self._owe(member)
            elif member.weight:
                gain = (member.bid.weight - member.weight) * served
                self._enter(member, member.bid.weight, member.base - -gain // weights)
        self._let_go()
        joined = [(member, bid.weight) for member in members if not member.weight and (bid := member.bid) is not None]
        for member, weight, base in [(member, weight, self._even(weight)) for member, weight in joined]:
            self._enter(member, weight, base)

    def first(self, state: State) -> Turn | None:
        """The first turn among the queues whose group is in the state."""
        best: int | None = None
        name = ""
        served, total = 2 * self._served, self._weights
        for (weight, cost), line in self._lines.of.items():
            item = line.first[state]
            if item is not None:
                amount = cost * UNIT
                behind = total * (2 * item[0] + amount) - weight * (served + 2 * amount)
                if best is None or behind < best or (behind == best and item[1] < name):
                    best, name = behind, item[1]
        return None if best is None else (best, name)

    def turn(self, name: str) -> Turn:
        """A contending queue's turn: minus twice its `lag + w*k/W - k/2`, times W."""
        member = self._members[name]
        bid = _claim(member)
        cost = bid.cost * UNIT
        return self._weights * (2 * member.base + cost) - bid.weight * 2 * (self._served + cost), name

    def pay(self, name: str, cost: int) -> None:
        """A job of that cost is picked from a contending queue, all changes before being settled."""
        member, amount, total = self._members[name], cost * UNIT, self._weights
        behind = member.weight * self._served - member.base * total
        self._enlarge(member, cost, behind)
        near = _BOUND * total * member.size
        if behind > near:
            amount += max(0, behind - self._bound) // total
        elif behind < amount * (total - member.weight) - near:
            self._cut_blocked()
        self._serve(member, amount)

    def charge(self, name: str, cost: int, weight: int) -> None:
        """A queue of that weight pays as if a job of that cost had been picked, whether the queue contends or not."""
        member = self._members.get(name)
        if member is None:
            member = self._new(name, 0)
        if not member.weight:
            self._enter(member, weight, self._even(weight))
            self._note(member)
        self._enlarge(member, cost, member.weight * self._served - member.base * self._weights)
        self._serve(member, cost * UNIT)

    def refund(self, name: str, cost: int) -> None:
        """The inverse pick: a job of that cost came back before it was granted. It leaves no queue behind its share by
        more than that job, and a queue that is even and does not contend gets nothing."""
        member = self._members.get(name)
        if member is None or not member.weight:
            return
        behind = (member.weight * self._served - member.base * self._weights) // self._weights
        self._serve(member, -max(0, min(cost * UNIT, cost * UNIT - behind)))

    def _serve(self, member: Member, amount: int) -> None:
        """Add to a member's base."""
        member.base += amount
        self._served += amount
        self._touched.add(member.name)
        if member.line is None:
            self._moved.add(member.name)  # it is even at another time
            return
        old = member.item
        member.item = member.base, old[1], old[2]
        member.line.replace(old, member.item)
        if self._debts:
            self._let_go()

    @property
    def _bound(self) -> int:
        """The most by which a queue that waits for room may be behind, times W."""
        return _BOUND * self._weights * max(self._sizes)

    def _cut_blocked(self) -> None:
        """Bound what queues are behind that were not picked for want of room; the other queues get the rest by weight.
        Of queues of one weight and cost the furthest behind is cut, so that the work does not grow with their number.
        """
        for line in self._lines.of.values():
            for state in BLOCKED:
                item = line.first[state]
                member = self._members[item[1]] if item is not None else None
                if member is None or not 0 < member.weight < self._weights:
                    continue
                excess = member.weight * self._served - member.base * self._weights - self._bound
                if excess > 0:
                    self._serve(member, excess // (self._weights - member.weight))

    # Members

    def account(self, name: str) -> Account:
        """A queue's account now."""
        member = self._members.get(name)
        if member is None or not member.weight:
            return UNTOUCHED
        return Account._make((member.base, member.weight, member.largest))

    def changes(self) -> dict[str, Account]:
        """The accounts that differ from those last stored, which count as stored from now on."""
        changed: dict[str, Account] = {}
        touched, stored = self._touched, self._stored
        for name in sorted(touched) if len(touched) > 1 else touched:
            account = self.account(name)
            if account != stored.get(name, UNTOUCHED):
                changed[name] = stored[name] = account
        touched.clear()
        return changed

    def _even(self, weight: int) -> int:
        """The base with which a queue is even."""
        return -(-weight * self._served // self._weights) if self._weights else 0

    def _new(self, name: str, base: int) -> Member:
        member = self._members[name] = Member(name, 0, base, 0)
        self._sizes[0] = self._sizes.get(0, 0) + 1
        return member

    def _enter(self, member: Member, weight: int, base: int) -> None:
        """Become a member, or have another weight, with that base."""
        self._weights += weight - member.weight
        self._served += base - (member.base if member.weight else 0)
        member.weight, member.base = weight, base
        self._touched.add(member.name)
        if member.line is not None:
            old = member.item
            member.item = base, old[1], old[2]
            member.line.replace(old, member.item)

    def _owe(self, member: Member) -> None:
        """A member does not contend any more, and goes when it is even."""
        even_at = (member.base << _FINE) // member.weight
        if self._even_at.get(member.name) != even_at:
            self._even_at[member.name] = even_at
            heapq.heappush(self._debts, (even_at, member.name))

    def _let_go(self) -> None:
        """The members that do not contend and are not ahead of their share go. Each one that goes may let others go."""
        debts = self._debts
        while debts:
            even_at, name = debts[0]
            member = self._members.get(name) if self._even_at.get(name) == even_at else None
            if member is None or member.bid is not None:
                self._forget_debt()
            elif member.base * self._weights > member.weight * self._served:
                return
            else:
                self._forget_debt()
                self._weights -= member.weight
                self._served -= member.base
                self._touched.add(name)
                self._forget(member)

    def _forget_debt(self) -> None:
        even_at, name = heapq.heappop(self._debts)
        if self._even_at.get(name) == even_at:
            del self._even_at[name]

    def _forget(self, member: Member) -> None:
        del self._members[member.name]
        self._moved.discard(member.name)
        self._forget_size(member.size)

    def _note(self, member: Member) -> None:
        """Whether it contends as it did at the last turn."""
        if member.weight == (0 if member.bid is None else member.bid.weight):
            self._moved.discard(member.name)
        else:
            self._moved.add(member.name)

    def _enlarge(self, member: Member, cost: int, behind: int) -> None:
        member.largest = cost if behind >= 0 else max(member.largest, cost)
        self._resize(member)

    def _resize(self, member: Member) -> None:
        size, bid = member.largest, member.bid
        if bid is not None and bid.cost > size:
            size = bid.cost
        if size != member.size:
            self._forget_size(member.size)
            self._sizes[size] = self._sizes.get(size, 0) + 1
            member.size = size

    def _forget_size(self, size: int) -> None:
        left = self._sizes[size] - 1
        if left:
            self._sizes[size] = left
        else:
            del self._sizes[size]


def lag(account: Account, clock: Clock) -> float:
    """Return how much cost a queue is behind its share (below 0: ahead of it); 0 for one that does not count."""
    if not account.weight:
        return 0.0
    return (account.weight * clock.served - account.base * clock.weights) / (clock.weights * UNIT)


def _claim(member: Member) -> Bid:
    if member.bid is None:
        raise ValueError(f"queue {member.name} does not contend")
    return member.bid
