"""Whose turn it is: smooth weighted round robin by cost, in which a queue keeps its account while it is away.

One rule: a queue that is ahead of its share keeps its account until the service of the other queues has made it even,
whether it contends or not.

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

The turn goes to the queue that is furthest behind at the middle of its next job: the largest `lag + w*k/W - k/2`. Ties
go to the first name. For k = 1 the last term is the same for all.

Any number of queues may come and go between two picks. Only when the next turn is taken does it count which contend:

- A queue that comes begins even: its base makes its lag 0.
- A queue that leaves while it is ahead remains a member that cannot be picked. It is dropped when its lag has reached
  0. If it returns before, it continues from its lag. So leaving never cancels a debt.
- A queue that leaves while it is behind is dropped at once, and its claim is lost: B/W rises, so that the members that
  stay get it by weight.
- A queue whose weight changes keeps its lag.

No queue is ahead of its fluid share by more than one largest job, whatever any queue does. For members that do not
contend are ahead, so the lags of those that contend sum to 0 or more. The picked queue has the largest
`lag + w*k/W - k/2` of all, so it has at least minus half of a largest job; after the pick its lag is that less k/2.

A contending queue whose next job finds no room is not picked. Its lag grows without this bound, while the others get
ever further ahead. So there is a cut where a pick brings a queue more than 3/2 of the largest job ahead: the lags of
queues that wait for room become 3/2 of that job, and the others get the rest by weight. The order among the others
stays. The lag of a picked queue counts as 3/2 of the largest job at most. Where there is room for every job, no lag was
observed to reach that, unless weights are multiplied while queues contend.

Each pick changes one account, apart from those cuts. Bases are whole numbers of 1/UNIT. They are rounded up where a
queue joins or its weight changes, so that such a queue gains nothing by it, and are exact otherwise.
"""

from collections.abc import Mapping

from queues.picking.grouped_index import State
from queues.picking.lines import Bid, Lines
from queues.picking.share_accounts import ShareAccounts, ShareMember
from queues.values import Account, Clock

Turn = tuple[int, str]
"""A queue's position in the order of turns, the first the least, and its name. Valid until the next change."""
UNIT = 1 << 16
"""A cost of 1, as a base counts it."""
_BOUND = 3 * UNIT // 2
"""The largest lag of a queue that waits for room, in units of the largest job."""
BLOCKED: tuple[State, ...] = ("waiting", "aside")
"""The states of queues whose next jobs find no room."""


class FairShare(ShareAccounts):
    """The order of turns, and the accounts of all queues while picks are made."""

    def __init__(self, clock: Clock, accounts: Mapping[str, Account]) -> None:
        """Begin with the accounts as stored. Accounts of another version of the algorithm do not count."""
        super().__init__(clock, accounts)
        self._lines = Lines()

    @property
    def groups_without_room(self) -> set[int]:
        """The groups whose state is not open."""
        return self._lines.groups_without_room

    def set_state(self, group: int, state: State) -> None:
        """Change a group's state."""
        self._lines.set_state(group, state)

    def cost(self, name: str) -> int:
        """Return the cost of a contending queue's next job."""
        return _bid_of(self._members[name]).cost

    def bid(self, name: str, bid: Bid | None) -> None:
        """Set what a queue's next job asks for; None: the queue does not contend."""
        member = self._members.get(name)
        if member is None:
            if bid is None:
                return
            member = self._add_member(name, self._even_base(bid.weight))
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
                self._drop_member(member)

    # Turns

    def settle(self) -> None:
        """Begin a turn: joining, leaving and changes of weight since the last turn count from now on."""
        members = [self._members[name] for name in self._unsettled]
        self._touched |= self._unsettled
        self._unsettled = set()
        served, weights = self._served, self._weights
        for member in members:
            if member.bid is None:
                self._add_debt(member)
            elif member.weight:
                gain = (member.bid.weight - member.weight) * served
                self._enter(member, member.bid.weight, member.base - -gain // weights)
        self._drop_even()
        joined = [(member, bid.weight) for member in members if not member.weight and (bid := member.bid) is not None]
        for member, weight, base in [(member, weight, self._even_base(weight)) for member, weight in joined]:
            self._enter(member, weight, base)

    def first(self, state: State) -> Turn | None:
        """Return the first turn among the queues whose group is in a state."""
        best: int | None = None
        name = ""
        served, total = 2 * self._served, self._weights
        for (weight, cost), line in self._lines.by_bid.items():
            item = line.first[state]
            if item is not None:
                amount = cost * UNIT
                behind = total * (2 * item[0] + amount) - weight * (served + 2 * amount)
                if best is None or behind < best or (behind == best and item[1] < name):
                    best, name = behind, item[1]
        return None if best is None else (best, name)

    def turn(self, name: str) -> Turn:
        """Return a contending queue's turn: minus twice its `lag + w*k/W - k/2`, times W."""
        member = self._members[name]
        bid = _bid_of(member)
        cost = bid.cost * UNIT
        return self._weights * (2 * member.base + cost) - bid.weight * 2 * (self._served + cost), name

    # Payments

    def pay(self, name: str, cost: int) -> None:
        """Charge a contending queue for a picked job of that cost. All changes must be settled before."""
        member, amount, total = self._members[name], cost * UNIT, self._weights
        behind = member.weight * self._served - member.base * total
        self._enlarge(member, cost, behind)
        near = _BOUND * total * member.size
        if behind > near:
            amount += max(0, behind - self._lag_limit) // total
        elif behind < amount * (total - member.weight) - near:
            self._limit_lags()
        self._serve(member, amount)

    def charge(self, name: str, cost: int, weight: int) -> None:
        """Charge a queue of that weight for a job of that cost without a pick, whether the queue contends or not."""
        member = self._members.get(name)
        if member is None:
            member = self._add_member(name, 0)
        if not member.weight:
            self._enter(member, weight, self._even_base(weight))
            self._note(member)
        self._enlarge(member, cost, member.weight * self._served - member.base * self._weights)
        self._serve(member, cost * UNIT)

    def refund(self, name: str, cost: int) -> None:
        """Undo the charge of a job of that cost, which was picked but not granted.

        The refund leaves no queue further behind its share than that one job. A queue that is even and does not contend
        gets nothing.
        """
        member = self._members.get(name)
        if member is None or not member.weight:
            return
        behind = (member.weight * self._served - member.base * self._weights) // self._weights
        self._serve(member, -max(0, min(cost * UNIT, cost * UNIT - behind)))

    def _serve(self, member: ShareMember, amount: int) -> None:
        """Add an amount to a member's base."""
        member.base += amount
        self._served += amount
        self._touched.add(member.name)
        if member.line is None:
            self._unsettled.add(member.name)  # the time at which it is even has changed
            return
        old = member.item
        member.item = member.base, old[1], old[2]
        member.line.replace(old, member.item)
        if self._debts:
            self._drop_even()

    @property
    def _lag_limit(self) -> int:
        """The largest lag of a queue that waits for room, times W."""
        return _BOUND * self._weights * max(self._sizes)

    def _limit_lags(self) -> None:
        """Limit the lags of queues that were not picked for want of room; the other queues get the rest by weight.

        Of queues of one weight and cost only the furthest behind is cut, so that the work does not grow with their
        number.
        """
        for line in self._lines.by_bid.values():
            for state in BLOCKED:
                item = line.first[state]
                member = self._members[item[1]] if item is not None else None
                if member is None or not 0 < member.weight < self._weights:
                    continue
                excess = member.weight * self._served - member.base * self._weights - self._lag_limit
                if excess > 0:
                    self._serve(member, excess // (self._weights - member.weight))


def lag(account: Account, clock: Clock) -> float:
    """Return how much cost a queue is behind its share (below 0: ahead of it); 0 for an account that does not count."""
    if not account.weight:
        return 0.0
    return (account.weight * clock.served - account.base * clock.weights) / (clock.weights * UNIT)


def _bid_of(member: ShareMember) -> Bid:
    if member.bid is None:
        raise ValueError(f"queue {member.name} does not contend")
    return member.bid
