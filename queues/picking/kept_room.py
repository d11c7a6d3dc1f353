"""The pool's one reservation: the job for which room is reserved, and what its queue owes if the job is withdrawn.

One rule: every debt follows from what the store holds, so that a new picker collects it as well.

The problem: reserved room is idle while other queues wait. If it were free of charge, an owner could submit a job for
the whole pool, let room be kept for it, withdraw it, and begin again. So a reservation costs what the use of the room
costs, once. Queue a has 8 of 8 GPUs reserved, and a job of 8 costs 8:

    the job of a                                              a pays
    starts                                                    8, for the pick
    is deleted, held, moved, edited, or passed by a job of a  8, and its patience begins anew
    is no longer allowed by quota or cohort                   8, likewise
    is larger than the queue or the pool can ever be now      0: its owner did not cause that
    leaves while the admin has closed the queue               0, likewise

A queue is liable (it owes for its job) from the moment when room is first reserved. It stays liable while the
reservation serves a job of another queue that was overtaken earlier. Other jobs of a liable queue pass its first one
only if they leave the quota and the room that it needs.

Room is reserved only for a job that fits beside what its own queue uses: else a small job of the same owner that never
ends would keep the pool idle, and the owner would pay nothing. It is reserved for no job that borrows quota: a lender
that takes its quota back would make the borrower pay for room that nothing used. To reserve for several jobs at once
would keep more room idle, and the order in which they get it would not follow from the store.
"""

from collections.abc import Collection, Mapping

from crds.resources.amounts import NOTHING, Amounts
from queues.picking.fair_share import FairShare
from queues.picking.prices import Prices
from queues.picking.queue_state import Candidate, QueueState
from queues.values import OvertakenJob, Settlement

Records = Mapping[str, OvertakenJob | None]
"""By queue, the record of its overtaken job; None: the record ends."""
Claim = tuple[float, str]
"""When a queue's first job was first overtaken, and the queue. The least claim has the reservation."""


class PoolReservation:
    """The holder of the reservation and the liable queues, while picks are made."""

    def __init__(self, queues: Mapping[str, QueueState], patience: float) -> None:
        """`queues` belongs to the caller, who calls `add` when one is loaded and `consider` when one bids.

        `patience` is that of the jobs, in seconds."""
        self._queues = queues
        self.patience = patience
        self.holder: QueueState | None = None
        """The queue whose first job holds the reservation since the last choice."""
        self._claim: Claim | None = None
        self._delayed: set[str] = set()
        """Queues whose first jobs were overtaken."""
        self._liable: set[str] = set()
        self._unsaved: dict[str, OvertakenJob | None] = {}
        self._paid = False
        self.outdated = True
        """Whether another job may be due for the reservation."""

    def add(self, queue: QueueState) -> None:
        """Note a queue whose known entries have changed."""
        name = queue.spec.name
        self._delayed.discard(name)
        if queue.overtaken is not None and queue.overtaken.kept is not None:
            self._liable.add(name)
        elif self._liable:
            self._liable.discard(name)

    def consider(self, queue: QueueState, now: float) -> None:
        """Note whether another job may be due for the reservation, after a queue's first job or its record changed."""
        name = queue.spec.name
        if queue.first_overtaken is None:
            self._delayed.discard(name)
        else:
            self._delayed.add(name)
        since = queue.impatient_since(now, self.patience)
        claim = None if since is None else (since, name)
        if self._claim is not None and self._claim[1] == name:
            self.outdated |= claim != self._claim
        else:
            self.outdated |= claim is not None and (self._claim is None or claim < self._claim)

    def choose(self, now: float) -> Amounts:
        """Give the reservation to the job that was overtaken first, of those whose patience has ended.

        Return the job's demand; nothing if there is no such job.
        """
        self.outdated = False
        since = ((self._queues[name].impatient_since(now, self.patience), name) for name in self._delayed)
        self._claim = min(((start, name) for start, name in since if start is not None), default=None)
        self.holder = self._queues[self._claim[1]] if self._claim else None
        return NOTHING if self.holder is None or self.holder.first is None else self.holder.first.demand

    def bind(self) -> bool:
        """Make the queue that holds the reservation liable; return whether it became liable just now."""
        queue = self.holder
        if queue is not None and queue.spec.name not in self._liable:
            name = queue.spec.name
            self._unsaved[name] = queue.mark_reserved()
            self._liable.add(name)
            return True
        return False

    @property
    def liable(self) -> Collection[str]:
        """The queues that owe for a waiting job for which room is or was reserved."""
        return self._liable

    def collect(self, fair_share: FairShare, prices: Prices) -> list[str]:
        """Charge the liable queues whose jobs were withdrawn, and return their names."""
        names = []
        for name in sorted(self._liable):
            queue = self._queues[name]
            state, record = queue.reservation_state, queue.overtaken
            if state in ("waits", "unknown"):
                continue
            self._release(queue)
            if state == "withdrawn" and queue.spec.open and record is not None and record.kept is not None:
                self.settle(fair_share, name, prices.of(record.kept))
                names.append(name)
        return names

    def settle(self, fair_share: FairShare, name: str, cost: int) -> None:
        """Charge a queue without a pick, or refund it if the cost is below 0. Ignore a queue that is not configured."""
        if name not in self._queues:
            return
        if cost < 0:
            fair_share.refund(name, -cost)
        else:
            fair_share.charge(name, cost, self._queues[name].spec.weight)
        self._paid = True

    def with_pick(self, queue: QueueState, candidate: Candidate, records: Records) -> Records:
        """Return the records of a pick with those that changed before it.

        If the pick is the job for which room is reserved, the queue pays for the pick only.
        """
        if queue.spec.name in self._liable and queue.first is not None and candidate.position == queue.first.position:
            self._release(queue)
        changes, self._unsaved, self._paid = {**self._unsaved, **records}, {}, False
        return changes

    def keep(self, queue: QueueState, record: OvertakenJob | None) -> None:
        """Replace the record of a queue, to be stored with the next picks."""
        queue.overtaken = self._unsaved[queue.spec.name] = record
        if record is None:
            self._delayed.discard(queue.spec.name)

    @property
    def has_unsaved(self) -> bool:
        """Whether a record or an account has changed that no pick will store."""
        return self._paid or bool(self._unsaved)

    def settlement(self, fair_share: FairShare) -> Settlement:
        """Return the changes that no pick will store. They count as stored from now on."""
        records, self._unsaved = self._unsaved, {}
        paid, self._paid = self._paid, False
        return Settlement(fair_share.clock, fair_share.changes(), records) if paid else Settlement(None, {}, records)

    def _release(self, queue: QueueState) -> None:
        name = queue.spec.name
        queue.overtaken = self._unsaved[name] = None
        self._liable.discard(name)
        self._delayed.discard(name)
        self.outdated = True
