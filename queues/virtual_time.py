"""WF2Q+: who would have been served first if all queues were served at once, each at its weight's speed.

One rule: a queue's next job begins, in virtual time, where its last one ended, or now if the queue comes anew.

Virtual time V passes by cost/W with each pick (W: the sum of the contending weights), and is never before the earliest
start. A queue's next job of cost k starts at S and ends at S + k/weight. Of the jobs that have started (S <= V) the one
that ends first goes; who has not started has had its share already, and goes only if nobody else can. Weights a=2, b=1,
all jobs of cost 6:

    pick   V    a from..to   b from..to   goes
    1      0      0..3         0..6       a
    2      2      3..6         0..6       b     (a has not started)
    3      4      3..6         6..12      a
    4      6      6..9         6..12      a

A queue that joins, or whose weight is changed, starts at V at the earliest, so it hoards nothing, and its largest cost
after V at the latest, so it owes no more than one job. After J. C. R. Bennett and H. Zhang, "Hierarchical packet fair
queueing algorithms", 1997, where no queue is ahead of its share by more than one of its jobs.

Times are whole numbers of 1/2**40, and what a division leaves over is carried along in the clock.
"""

from collections.abc import Collection

from queues.ledger import Ledger, Line, Member, Turn
from queues.standing import Item, State

UNIT = 1 << 40
"""One unit of cost at weight 1. Weights go to 10**6, so a pick's rounding is below a millionth of its cost."""
_STARTED: Line = (0, 0)
_AHEAD: Line = (1, 0)


class VirtualTime(Ledger):
    """The starts of all queues (the accounts' base), while picks are made. `Clock.turns` is V."""

    picker = "wf2q"

    def first(self, state: State) -> Turn | None:
        """Who ends first of those that have started; then who starts first."""
        for line in (_STARTED, _AHEAD):
            item = self._lines[line].first[state] if line in self._lines else None
            if item is not None:
                return line[0], item[0], item[1]
        return None

    def turn(self, name: str) -> Turn:
        """See Ledger."""
        (ahead, _), rank = self._place(self._members[name])
        return ahead, rank, name

    def refund(self, name: str, cost: int, weight: int, /) -> None:
        """Its next job starts as much earlier as that one took."""
        self._touched.add(name)
        member = self._members.get(name)
        if member is None:
            self._outside[name] -= cost * UNIT // weight
        else:
            self._rebase(member, member.base - cost * UNIT // member.bid.weight)

    def _frozen(self, base: int, _: int) -> int:
        return base

    def _entering(self, base: int, _: int) -> int:
        return base

    def _settle(self, joined: Collection[str]) -> None:
        """Who joins starts now at the earliest, and one largest job from now at the latest."""
        largest = max(self._sizes)
        for name in joined:
            member = self._members[name]
            latest = self._turns + largest * UNIT // member.bid.weight
            self._rebase(member, min(max(member.base, self._turns), latest))
        self._begin()

    def _pay(self, member: Member, cost: int) -> None:
        member.base += cost * UNIT // member.bid.weight
        passed, self._shift = divmod(cost * UNIT + self._shift, self._weights)
        self._turns += passed

    def pay(self, name: str, cost: int) -> None:
        """See Ledger."""
        super().pay(name, cost)
        self._begin()

    def _begin(self) -> None:
        """Let every job start whose start has come; if none has, the time of the first one comes at once."""
        first = self._first_ahead()
        if first is not None and not self._lines.get(_STARTED):
            self._turns = max(self._turns, first[0])
        while first is not None and first[0] <= self._turns:
            member = self._members[first[1]]
            member.line.discard(member.item)
            self._stand(member)
            first = self._first_ahead()

    def _first_ahead(self) -> Item | None:
        line = self._lines.get(_AHEAD)
        return min((item for item in line.first.values() if item), default=None) if line else None

    def _place(self, member: Member) -> tuple[Line, int]:
        if member.base > self._turns:
            return _AHEAD, member.base
        return _STARTED, member.base + member.bid.cost * UNIT // member.bid.weight
