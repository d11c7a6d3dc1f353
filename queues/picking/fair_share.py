"""The order of turns: smooth weighted round robin by cost, in which a queue keeps its account while it is away.

One rule: a queue that is ahead of its share keeps its account until the service of the other queues has made it even,
whether it contends or not.

The problem: a comparison of what queues use now, as in Kueue's fair sharing, forgets. A queue of many short jobs could
go first for a day, and would then owe nothing. A plain count of what each queue was served never forgets: a queue that
comes back after a week would get the pool for a week. So service counts among the queues that contend: `base` is what a
member was served, B is the sum of the bases, W is the sum of the weights. A member of weight w is behind its share by
its lag, `w*B/W - base`; the lags sum to 0. A pick of cost k adds k to one base, so every member gains w*k/W. The turn
goes to the largest `lag + w*k/W - k/2`: the queue that is furthest behind at the middle of its next job. Where every
cost is 1 this is nginx's algorithm, whose credits are W times the lags. For weights a=5, b=1, c=1:

    pick   credits + gains   goes   credits         pick   credits + gains   goes   credits
    1        5   1   1        a     -2   1   1      4        6  -3   4        a     -1  -3   4
    2        3   2   2        a     -4   2   2      5        4  -2   5        c      4  -2  -2
    3        1   3   3        b      1  -4   3      6        9  -1  -1        a      2  -1  -1

A queue that comes begins even. A queue that leaves while it is ahead stays a member that cannot be picked, until it is
even: leaving cancels no debt. A queue that leaves while it is behind is dropped, and the others share its claim by
weight. A change of weight keeps the lag. Ties go to the first name. No queue is ahead by more than one largest job.
"""

import heapq
from collections.abc import Mapping
from dataclasses import dataclass

from queues.picking.grouped_index import Bid, GroupedIndex, Item, Lines, State
from queues.values import ACCOUNT_SCHEME, NEW_ACCOUNT, Account, Clock

Turn = tuple[int, str]
"""A queue's position in the order of turns (the least is first), and its name. Valid until the next change."""
UNIT = 1 << 16
"""A cost of 1, as a base counts it."""
_BOUND = 3 * UNIT // 2
"""The largest lag of a queue that waits for room, in units of the largest job."""
_FINE = 64
"""The bits after the binary point of base / weight, by which debts are sorted. Two different quotients differ by more
than 2**-64, since weights are at most 10**6."""
BLOCKED: tuple[State, ...] = ("waiting", "aside")
"""The states of queues whose next jobs find no room."""


@dataclass(slots=True)
class ShareMember:
    """A queue that contends, or that is ahead of its share."""

    name: str
    weight: int
    """The weight with which the queue has counted since the last turn; 0: the queue joins at the next turn."""
    base: int
    largest: int
    """The largest job with which the queue was picked since it was last even or behind."""
    bid: Bid | None = None
    """The request of the queue's next job; None means that the queue does not contend."""
    size: int = 0
    """The larger of `largest` and the cost of the queue's next job."""
    line: GroupedIndex | None = None
    """The index that holds `item` while the queue contends."""
    item: Item = (0, "", 0)


class FairShare:
    """The order of turns, and the accounts of all queues while picks are made.

    Any number of queues may come and go between two picks. Which queues contend is counted only when the next turn is
    taken. Members that do not contend are ahead, so the lags of the members that contend sum to 0 or more. The picked
    queue has the largest `lag + w*k/W - k/2`, and this value is at least minus half of a largest job. After the pick,
    its lag is this value less k/2: no queue is ahead of its fluid share by more than one largest job, whatever any
    queue does.

    Each pick changes one account, apart from the cuts of `_limit_lags`. Bases are whole numbers of 1/UNIT. They are
    rounded up where a queue joins or its weight changes, so that this gains nothing, and are exact otherwise.
    """

    def __init__(self, clock: Clock, accounts: Mapping[str, Account], scheme: str = ACCOUNT_SCHEME) -> None:
        """Begin with the accounts as stored. Accounts in another unit, or of another algorithm, do not count."""
        self._stored = dict(accounts)
        self._touched: set[str] = set()
        self._scheme = scheme
        if clock.scheme != scheme:
            self._touched, accounts = set(accounts), {}
        self._members: dict[str, ShareMember] = {}
        self._sizes: dict[int, int] = {}
        """The number of members of each size."""
        self._served = self._weights = 0
        for name, (base, weight, largest) in accounts.items():
            if weight:
                self._members[name] = ShareMember(name, weight, base, largest, size=largest)
                self._sizes[largest] = self._sizes.get(largest, 0) + 1
                self._served += base
                self._weights += weight
        self._unsettled = set(self._members)
        """The members that began or stopped to contend since the last turn, or changed their weight."""
        self._debts: list[tuple[int, str]] = []
        """A heap of the members that do not contend, ordered by when they are even."""
        self._even_at: dict[str, int] = {}
        """The valid entries of the heap."""
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
        """Set the request of a queue's next job. None means that the queue does not contend."""
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

    @property
    def clock(self) -> Clock:
        """The clock, which has the sums of all bases and weights, as it is now."""
        return Clock._make((self._served, self._weights, self._scheme))

    @property
    def has_unsettled(self) -> bool:
        """Whether the queues that contend, or their weights, have changed since the last pick."""
        return bool(self._unsettled)

    def account(self, name: str) -> Account:
        """Return a queue's account as it is now."""
        member = self._members.get(name)
        if member is None or not member.weight:
            return NEW_ACCOUNT
        return Account._make((member.base, member.weight, member.largest))

    def lag(self, name: str) -> float:
        """Return how much cost a queue is behind its share; a negative number means that it is ahead."""
        return lag(self.account(name), self.clock)

    def changes(self) -> dict[str, Account]:
        """Return the accounts that differ from the accounts stored last. These accounts count as stored from now on."""
        changes: dict[str, Account] = {}
        touched, stored = self._touched, self._stored
        for name in sorted(touched) if len(touched) > 1 else touched:
            account = self.account(name)
            if account != stored.get(name, NEW_ACCOUNT):
                changes[name] = stored[name] = account
        touched.clear()
        return changes

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
        """Charge a contending queue for a picked job of this cost. All changes must be settled before this call."""
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
        """Charge a queue of this weight for a job of this cost without a pick, whether the queue contends or not."""
        member = self._counting_member(name, weight)
        self._enlarge(member, cost, member.weight * self._served - member.base * self._weights)
        self._serve(member, cost * UNIT)

    def charge_room(self, name: str, amount: int, weight: int) -> None:
        """Charge a queue of this weight for idle room, in 1/UNIT of cost. The amount by which it is then ahead counts
        as one job. Otherwise the others would lose their lag beyond the bound.
        """
        member = self._counting_member(name, weight)
        self._serve(member, amount)
        ahead = member.base * self._weights - member.weight * self._served
        member.largest = max(member.largest, -(-ahead // (self._weights * UNIT)))
        self._resize(member)

    def refund(self, name: str, cost: int) -> None:
        """Undo the charge of a job of this cost, which was picked but not granted.

        The refund leaves the queue behind its share by no more than this one job. A queue that is even and does not
        contend gets nothing.
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

        The lag of a queue whose next job finds no room grows without bound, while the others get ever further ahead. So
        when a pick brings a queue more than 3/2 of the largest job ahead, the lags of queues that wait for room are cut
        to this limit. The order among the other queues stays. The lag of a picked queue counts as this much at most.
        Where every job has room, no lag was observed to reach this limit, unless weights are multiplied meanwhile.

        Of the queues of one weight and cost, only the queue that is furthest behind is cut, so that the work does not
        grow with their number.
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

    # Joining and leaving

    def _even_base(self, weight: int) -> int:
        """Return the base with which a queue of a weight is even."""
        return -(-weight * self._served // self._weights) if self._weights else 0

    def _add_member(self, name: str, base: int) -> ShareMember:
        member = self._members[name] = ShareMember(name, 0, base, 0)
        self._sizes[0] = self._sizes.get(0, 0) + 1
        return member

    def _counting_member(self, name: str, weight: int) -> ShareMember:
        """Return a queue that counts from now on, with this weight if it did not count before."""
        member = self._members.get(name)
        if member is None:
            member = self._add_member(name, 0)
        if not member.weight:
            self._enter(member, weight, self._even_base(weight))
            self._note(member)
        return member

    def _enter(self, member: ShareMember, weight: int, base: int) -> None:
        """Let a member count with a weight and a base."""
        self._weights += weight - member.weight
        self._served += base - (member.base if member.weight else 0)
        member.weight, member.base = weight, base
        self._touched.add(member.name)
        if member.line is not None:
            old = member.item
            member.item = base, old[1], old[2]
            member.line.replace(old, member.item)

    def _add_debt(self, member: ShareMember) -> None:
        """Note that a member does not contend any more. The member leaves when it is even."""
        even_at = (member.base << _FINE) // member.weight
        if self._even_at.get(member.name) != even_at:
            self._even_at[member.name] = even_at
            heapq.heappush(self._debts, (even_at, member.name))

    def _drop_even(self) -> None:
        """Drop the members that neither contend nor are ahead of their share. Each drop may make other members even."""
        debts = self._debts
        while debts:
            even_at, name = debts[0]
            member = self._members.get(name) if self._even_at.get(name) == even_at else None
            if member is None or member.bid is not None:
                self._drop_debt()
            elif member.base * self._weights > member.weight * self._served:
                return
            else:
                self._drop_debt()
                self._weights -= member.weight
                self._served -= member.base
                self._touched.add(name)
                self._drop_member(member)

    def _drop_debt(self) -> None:
        even_at, name = heapq.heappop(self._debts)
        if self._even_at.get(name) == even_at:
            del self._even_at[name]

    def _drop_member(self, member: ShareMember) -> None:
        del self._members[member.name]
        self._unsettled.discard(member.name)
        self._drop_size(member.size)

    def _note(self, member: ShareMember) -> None:
        """Note whether a member contends as it did at the last turn."""
        if member.weight == (0 if member.bid is None else member.bid.weight):
            self._unsettled.discard(member.name)
        else:
            self._unsettled.add(member.name)

    # Sizes of jobs

    def _enlarge(self, member: ShareMember, cost: int, behind: int) -> None:
        member.largest = cost if behind >= 0 else max(member.largest, cost)
        self._resize(member)

    def _resize(self, member: ShareMember) -> None:
        size, bid = member.largest, member.bid
        if bid is not None and bid.cost > size:
            size = bid.cost
        if size != member.size:
            self._drop_size(member.size)
            self._sizes[size] = self._sizes.get(size, 0) + 1
            member.size = size

    def _drop_size(self, size: int) -> None:
        count = self._sizes[size] - 1
        if count:
            self._sizes[size] = count
        else:
            del self._sizes[size]


def lag(account: Account, clock: Clock) -> float:
    """Return how much cost a queue is behind its share (below 0: ahead of it); 0 for an account that does not count."""
    if not account.weight:
        return 0.0
    return (account.weight * clock.served - account.base * clock.weights) / (clock.weights * UNIT)


def _bid_of(member: ShareMember) -> Bid:
    if member.bid is None:
        raise ValueError(f"queue {member.name} does not contend")
    return member.bid
