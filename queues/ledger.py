"""Whose turn it is: what the pickers have in common.

One rule: between two picks any number of queues may come and go; only when the next turn is taken does it count who
contends then.

A ledger is a working copy of the store's accounts. A picker (`queues.credits`, `queues.virtual_time`) says what a turn
is worth and who has the first; this is the book in which both keep who contends, with what weight and what cost.
"""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from queues.standing import Item, Standing, State
from queues.values import Account, Clock

Turn = tuple[int, int, str]
"""Where a queue stands in the order of turns, the first the least; valid until the next change. The name is last."""
Line = tuple[int, int]
"""Queues whose order among each other does not change as turns pass."""


class Bid(NamedTuple):
    """A contending queue's claim: its weight, the cost of its next job, and the group of queues that ask for the same
    room."""

    weight: int
    cost: int
    group: int = 0


@dataclass(slots=True)
class Member:
    """A queue that contends."""

    name: str
    bid: Bid
    base: int
    last: int
    size: int
    """The largest cost that counts for it: of its last pick or its next."""
    line: Standing
    item: Item = (0, "", 0)


class Ledger(ABC):
    """The accounts of all queues while picks are made."""

    picker: str

    def __init__(self, clock: Clock, accounts: Mapping[str, Account]) -> None:
        """Begin where the store left off. What another picker wrote counts for nothing."""
        self._stored = dict(accounts)
        self._touched: set[str] = set()
        if clock.picker != self.picker:
            self._touched = set(accounts)
            clock, accounts = Clock(), dict.fromkeys(accounts, Account())
        self._turns, self._shift, self._weights = clock.turns, clock.shift, 0
        self._outside = {name: self._frozen(account.base, account.weight) for name, account in accounts.items()}
        self._last = {name: account.last for name, account in accounts.items()}
        self._known = {name: account.weight for name, account in accounts.items() if account.weight}
        self._joined_or_left = set(self._known)
        self._vanished = sum(self._known.values()) != clock.total
        self._members: dict[str, Member] = {}
        self._bases = 0
        self._sizes: Counter[int] = Counter()
        self._states: dict[int, State] = {}
        self.blocked: set[int] = set()
        """The groups that are not open."""
        self._lines: dict[Line, Standing] = {}
        self._nowhere = Standing(self._states)

    @property
    def clock(self) -> Clock:
        """The clock as it stands now."""
        return Clock._make((self._turns, self._shift, self._weights, self.picker))

    @property
    def unsettled(self) -> bool:
        """Whether other queues contend, or with other weights, than at the last pick."""
        return bool(self._joined_or_left) or self._vanished

    def bid(self, name: str, bid: Bid | None) -> None:
        """What a queue's next job asks for; None: it does not contend."""
        member = self._members.get(name)
        if member is None:
            if bid is not None:
                self._join(name, bid)
        elif bid is None:
            self._leave(member)
        elif bid != member.bid:
            member.line.discard(member.item)
            member.bid = bid
            self._resize(member)
            self._stand(member)

    def settle(self) -> None:
        """A turn comes: joining, leaving and changes of weight since the last one count from now on."""
        self._touched |= self._joined_or_left
        if self._members:
            self._settle(self._joined_or_left & self._members.keys())
        self._joined_or_left = set()
        self._vanished = False

    @abstractmethod
    def first(self, state: State) -> Turn | None:
        """The first turn among the queues whose group is in the state."""

    @abstractmethod
    def turn(self, name: str) -> Turn:
        """A contending queue's turn."""

    def pay(self, name: str, cost: int) -> None:
        """A job of that cost is picked from a contending queue."""
        member = self._members[name]
        if member.last != cost:
            member.last = cost
            self._resize(member)
        before = member.base
        self._pay(member, cost)
        self._bases += member.base - before
        self._stand_again(member)
        self._touched.add(name)

    def charge(self, name: str, cost: int, weight: int) -> None:
        """A queue pays as for a pick of that cost, whether it contends or not: room was kept for a job of its that was
        withdrawn. `weight` is its own."""
        if self.unsettled:
            self.settle()
        if name in self._members:
            self.pay(name, cost)
        else:
            self._last[name] = max(self._last[name], cost)
            self.refund(name, -cost, weight)

    @abstractmethod
    def refund(self, name: str, cost: int, weight: int, /) -> None:
        """The inverse pick: a job of that cost came back before it had run. `weight` is its queue's."""

    def changes(self) -> dict[str, Account]:
        """The accounts that differ from those last stored, which they count as from now on."""
        changed: dict[str, Account] = {}
        touched, stored = self._touched, self._stored
        for name in sorted(touched) if len(touched) > 1 else touched:
            account = self.account(name)
            if account != stored[name]:
                if account.weight != stored[name].weight:
                    self._know(name, account.weight)
                changed[name] = stored[name] = account
        touched.clear()
        return changed

    def account(self, name: str) -> Account:
        """A queue's account now."""
        member = self._members.get(name)
        if member is None:
            return Account(base=self._outside[name], last=self._last[name])
        return Account._make((member.base, member.bid.weight, member.last))

    def move(self, group: int, state: State) -> None:
        """Change a group's state."""
        old = self._states[group]
        self._states[group] = state
        if state == "open":
            self.blocked.discard(group)
        else:
            self.blocked.add(group)
        for line in self._lines.values():
            line.moved(group, old)

    @abstractmethod
    def _frozen(self, base: int, weight: int, /) -> int:
        """The base outside the set of an account that contends with a weight, or does not with 0."""

    @abstractmethod
    def _entering(self, base: int, weight: int, /) -> int:
        """The base inside the set, of one outside."""

    @abstractmethod
    def _settle(self, joined: Collection[str], /) -> None:
        """Bound what members are owed and owe, now that the set or its weights are others."""

    @abstractmethod
    def _pay(self, member: Member, cost: int) -> None:
        """Change a member's base, and the clock."""

    @abstractmethod
    def _place(self, member: Member) -> tuple[Line, int]:
        """The line in which a member stands, and its rank there."""

    def _rebase(self, member: Member, base: int) -> None:
        self._bases += base - member.base
        member.base = base
        self._stand_again(member)
        self._touched.add(member.name)

    def _join(self, name: str, bid: Bid) -> None:
        last = self._last[name]
        base = self._entering(self._outside[name], bid.weight)
        member = Member(name, bid, base, last, max(last, bid.cost), self._nowhere)
        self._members[name] = member
        self._bases += base
        self._sizes[member.size] += 1
        self._weights += bid.weight
        self._note(name, bid.weight)
        self._stand(member)

    def _leave(self, member: Member) -> None:
        name = member.name
        del self._members[name]
        self._outside[name], self._last[name] = self._frozen(member.base, member.bid.weight), member.last
        self._bases -= member.base
        self._forget_size(member.size)
        self._weights -= member.bid.weight
        self._note(name, 0)
        member.line.discard(member.item)

    def _note(self, name: str, weight: int) -> None:
        if self._known.get(name, 0) == weight:
            self._joined_or_left.discard(name)
        else:
            self._joined_or_left.add(name)

    def _know(self, name: str, weight: int) -> None:
        if weight:
            self._known[name] = weight
        else:
            self._known.pop(name, None)

    def _resize(self, member: Member) -> None:
        size = max(member.last, member.bid.cost)
        if size != member.size:
            self._forget_size(member.size)
            self._sizes[size] += 1
            member.size = size

    def _forget_size(self, size: int) -> None:
        self._sizes[size] -= 1
        if not self._sizes[size]:
            del self._sizes[size]

    def _stand(self, member: Member) -> None:
        line, rank = self._place(member)
        group = member.bid.group
        self._states.setdefault(group, "open")
        standing = self._lines.get(line)
        if standing is None:
            self._clear_lines()
            standing = self._lines[line] = Standing(self._states)
        member.line, member.item = standing, (rank, member.name, group)
        standing.add(member.item)

    def _stand_again(self, member: Member) -> None:
        """The same for one that stands where it stood before."""
        line, rank = self._place(member)
        if self._lines.get(line) is member.line:
            item = rank, member.name, member.bid.group
            member.line.replace(member.item, item)
            member.item = item
        else:
            member.line.discard(member.item)
            self._stand(member)

    def _clear_lines(self) -> None:
        """Forget empty lines, once most are."""
        if len(self._lines) > 2 * len(self._members) + 16:
            self._lines = {line: standing for line, standing in self._lines.items() if standing}
