"""The accounts of fair share: what each queue was served, and which queues count (`queues.picking.fair_share`).

One rule: a queue that is ahead of its share keeps its account, whether it contends or not, until it is even.
"""

import heapq
from collections.abc import Mapping
from dataclasses import dataclass

from queues.picking.grouped_index import GroupedIndex, Item
from queues.picking.lines import Bid
from queues.values import ACCOUNT_SCHEME, NEW_ACCOUNT, Account, Clock

_FINE = 64
"""The bits after the binary point of base / weight, by which debts are sorted. Two different quotients differ by more
than 2**-64, since weights are at most 10**6."""


@dataclass(slots=True)
class ShareMember:
    """A queue that contends, or that is ahead of its share."""

    name: str
    weight: int
    """The weight with which the queue has counted since the last turn; 0: it joins at the next turn."""
    base: int
    largest: int
    """The largest job with which the queue was picked since it was last even or behind."""
    bid: Bid | None = None
    """What the queue's next job asks for; None: the queue does not contend."""
    size: int = 0
    """The larger of `largest` and the cost of the queue's next job."""
    line: GroupedIndex | None = None
    """The index that holds `item` while the queue contends."""
    item: Item = (0, "", 0)


class ShareAccounts:
    """The members with their bases and weights, and the sums of both."""

    def __init__(self, clock: Clock, accounts: Mapping[str, Account]) -> None:
        """Begin with the accounts as stored. Accounts of another version of the algorithm do not count."""
        self._stored = dict(accounts)
        self._touched: set[str] = set()
        if clock.scheme != ACCOUNT_SCHEME:
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
        """A heap of the members that do not contend, by when they are even."""
        self._even_at: dict[str, int] = {}
        """The valid entries of the heap."""

    @property
    def clock(self) -> Clock:
        """The clock, which has the sums of all bases and weights, as it is now."""
        return Clock._make((self._served, self._weights, ACCOUNT_SCHEME))

    @property
    def has_unsettled(self) -> bool:
        """Whether other queues contend than at the last pick, or with other weights."""
        return bool(self._unsettled)

    def account(self, name: str) -> Account:
        """Return a queue's account as it is now."""
        member = self._members.get(name)
        if member is None or not member.weight:
            return NEW_ACCOUNT
        return Account._make((member.base, member.weight, member.largest))

    def changes(self) -> dict[str, Account]:
        """Return the accounts that differ from those last stored. They count as stored from now on."""
        changes: dict[str, Account] = {}
        touched, stored = self._touched, self._stored
        for name in sorted(touched) if len(touched) > 1 else touched:
            account = self.account(name)
            if account != stored.get(name, NEW_ACCOUNT):
                changes[name] = stored[name] = account
        touched.clear()
        return changes

    # Joining and leaving

    def _even_base(self, weight: int) -> int:
        """Return the base with which a queue of a weight is even."""
        return -(-weight * self._served // self._weights) if self._weights else 0

    def _add_member(self, name: str, base: int) -> ShareMember:
        member = self._members[name] = ShareMember(name, 0, base, 0)
        self._sizes[0] = self._sizes.get(0, 0) + 1
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
        """Note that a member does not contend any more. It leaves when it is even."""
        even_at = (member.base << _FINE) // member.weight
        if self._even_at.get(member.name) != even_at:
            self._even_at[member.name] = even_at
            heapq.heappush(self._debts, (even_at, member.name))

    def _drop_even(self) -> None:
        """Drop the members that neither contend nor are ahead of their share. Each drop may make others even."""
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
