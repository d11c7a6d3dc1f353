"""The pool's one reservation: for which waiting job room is kept, and what its queue owes if that job is withdrawn.

One rule: whatever is owed follows from what the store holds, so that a race that begins anew collects it as well.

While room is kept for a job it is idle, and other queues wait. If the job is admitted, its queue pays for the pick. If
the job leaves its place instead (it is deleted, suspended, held or moved to another queue, its demand is edited, or
another job of the queue is put before it), or if its quota or its cohort does not let it go any more, its queue pays
the same, once, and the job begins its patience anew. So keeping room costs what using it does. A job is bound from the
moment when room is first kept for it, also while the reservation serves a job of another queue that was overtaken
earlier. Other jobs of its queue pass it only if they leave the quota and the room that it needs.

No room is kept for a job that would not fit beside what its own queue uses: a small job of its owner that never ends
would keep the whole pool idle, and nothing would be paid. Once the queue's own jobs have made room the job is overtaken
as often as any other, and then room is kept for it. Nor is room kept for a job that borrows quota of its cohort: a
lender that takes its quota back would make the borrower pay for room that nothing used.

Nothing is owed for a job that is larger than its queue or the pool can give any more, nor for one that leaves a queue
which its admin has closed: that is not its owner's doing.
"""

from collections.abc import Collection, Mapping

from crds.resources.amounts import NOTHING, Amounts
from queues.picking import queue_state
from queues.picking.fair_share import Ledger
from queues.picking.queue_state import Candidate, Lane
from queues.rules import Patience
from queues.values import Overtaken, Settlement

Records = Mapping[str, Overtaken | None]
"""What is recorded of queues' overtaken jobs; None: nothing any more."""
Claim = tuple[float, str]
"""Since when a queue's first job has been overtaken, and the queue; the least has the reservation."""


class KeptRoom:
    """Who holds the reservation and who is bound by one, while picks are made."""

    def __init__(self, lanes: Mapping[str, Lane], patience: Patience) -> None:
        """`lanes` belongs to the caller, who says when one of them is shown anew or bids."""
        self._lanes = lanes
        self._patience = patience
        self.holder: Lane | None = None
        """The queue whose first job holds the reservation, as it was chosen last."""
        self._claim: Claim | None = None
        self._delayed: set[str] = set()
        self._bound: set[str] = set()
        self._unsaved: dict[str, Overtaken | None] = {}
        self._paid = False
        self.outdated = True
        """Whether another job should hold the reservation, perhaps."""

    def show(self, lane: Lane) -> None:
        """Other jobs of a queue are known than before."""
        name = lane.spec.name
        self._delayed.discard(name)
        if lane.overtaken is not None and lane.overtaken.kept is not None:
            self._bound.add(name)
        elif self._bound:
            self._bound.discard(name)

    def consider(self, lane: Lane, now: float) -> None:
        """Whether another job should hold the reservation, now that a queue's first job or its luck has changed."""
        name = lane.spec.name
        if lane.passed is None:
            self._delayed.discard(name)
        else:
            self._delayed.add(name)
        since = lane.waits_since(now, self._patience)
        claim = None if since is None else (since, name)
        if self._claim is not None and self._claim[1] == name:
            self.outdated |= claim != self._claim
        else:
            self.outdated |= claim is not None and (self._claim is None or claim < self._claim)

    def choose(self, now: float) -> Amounts:
        """Of the jobs whose patience has ended, the one that was overtaken first: it holds the reservation. What it
        asks for."""
        self.outdated = False
        since = ((self._lanes[name].waits_since(now, self._patience), name) for name in self._delayed)
        self._claim = min(((start, name) for start, name in since if start is not None), default=None)
        self.holder = self._lanes[self._claim[1]] if self._claim else None
        return NOTHING if self.holder is None or self.holder.first is None else self.holder.first.demand

    def bind(self) -> bool:
        """From now on the queue of the job that holds the reservation owes for it. Whether it did not before."""
        lane = self.holder
        if lane is not None and lane.spec.name not in self._bound:
            name = lane.spec.name
            self._unsaved[name] = lane.keep()
            self._bound.add(name)
            return True
        return False

    @property
    def bound(self) -> Collection[str]:
        """The queues that owe for a job for which room is or was kept, and which still waits."""
        return self._bound

    def collect(self, ledger: Ledger, cost: str) -> list[str]:
        """Let the queues pay of which a job was withdrawn for which room was kept; their names. `cost` is what a pick
        costs (`queues.rules`)."""
        paid = []
        for name in sorted(self._bound):
            lane = self._lanes[name]
            fate, kept = lane.fate, lane.overtaken
            if fate in ("waits", "unknown"):
                continue
            self._release(lane)
            if fate == "withdrawn" and lane.spec.open and kept is not None and kept.kept is not None:
                self.settle(ledger, name, queue_state.price(kept.kept, cost))
                paid.append(name)
        return paid

    def settle(self, ledger: Ledger, name: str, cost: int) -> None:
        """A queue pays without a pick, or gets back what is below 0. One that is not configured has no account."""
        if name not in self._lanes:
            return
        if cost < 0:
            ledger.refund(name, -cost)
        else:
            ledger.charge(name, cost, self._lanes[name].spec.weight)
        self._paid = True

    def with_pick(self, lane: Lane, candidate: Candidate, records: Records) -> Records:
        """What a pick changes in the records, with what has changed before it. If the job is the one for which room was
        kept, the pick is all that its queue pays."""
        if lane.spec.name in self._bound and lane.first is not None and candidate.at == lane.first.at:
            self._release(lane)
        changes, self._unsaved, self._paid = {**self._unsaved, **records}, {}, False
        return changes

    @property
    def unsaved(self) -> bool:
        """Whether something has changed that no pick carries."""
        return self._paid or bool(self._unsaved)

    def settlement(self, ledger: Ledger) -> Settlement:
        """What has changed that no pick carries; it counts as stored from now on."""
        records, self._unsaved = self._unsaved, {}
        paid, self._paid = self._paid, False
        return Settlement(ledger.clock, ledger.changes(), records) if paid else Settlement(None, {}, records)

    def _release(self, lane: Lane) -> None:
        name = lane.spec.name
        lane.overtaken = self._unsaved[name] = None
        self._bound.discard(name)
        self._delayed.discard(name)
        self.outdated = True
