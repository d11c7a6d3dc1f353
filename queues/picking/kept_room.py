"""The pool's one reservation: the job for which room is reserved, and what its queue pays for that room.

One rule: what is paid follows from what the store holds, so that a new picker goes on where the last one stopped.

The problem: reserved room is idle while other queues wait. If it were free of charge, an owner could submit a job for
the whole pool, let room be kept for it, and withdraw it; or let it wait for a small job of another queue that never
ends. So idle room costs what jobs in it would have cost: once a second the queue is charged `k * t / H`. k is the cost
of a job as large as what is idle, t the time since the last charge, and H for how long jobs hold their room: the mean
of those that ended last, of all queues, each by its cost. Queue a has 8 GPUs reserved for a job of 8, and H is 60 s:

    seconds     busy   idle   a pays
    0 to 30     4      4      2
    30 to 60    2      6      3
    60          0      8      8, for the pick; if the job is withdrawn now, nothing

Room is reserved until the job begins, leaves, or may not be kept any room (`QueueState.may_be_kept_room`). If its queue
is ahead of its share by MOST_JOBS such jobs before, it was in vain: the room goes to others, and the job begins its
patience anew at its queue's next turn, which comes once the queue is even. So a queue is ahead by one largest job and
one keeping at most, and what it idles and uses over time is its share, whoever else plays with it. From the third time
on, a keeping may cost the same again: so a large job begins in the end, however differently jobs last. The plan of
resizes can end the patience of a job at once, but not while its queue is ahead by more than that job.

Room is reserved only for a job that fits beside what its own queue uses: else a small job of the same owner that never
ends would idle the pool. It is reserved for no job that borrows quota: a lender that takes its quota back would make
the borrower pay for room that nothing used. To reserve for several jobs at once would keep more room idle, and the
order in which they get it would not follow from the store. While another job has the reservation, because it was
overtaken earlier, a job's queue pays nothing.
"""

import math
from collections.abc import Collection, Mapping
from dataclasses import replace

from queues.picking.fair_share import UNIT, FairShare
from queues.picking.pool import Pool
from queues.picking.queue_state import Candidate, QueueState
from queues.values import OvertakenJob, Settlement

MOST_JOBS = 8
"""The jobs by whose cost a queue may be ahead of its share while room is reserved for one of them. Where jobs last for
random times of one mean, the room of a thousand of them is free after about 6; in the openb trace, no job costs 4."""
BOOKED_SECONDS = 1.0
"""The least time for which a queue is charged."""
MOST_SECONDS = 15.0
"""The longest time for which a queue is charged at once. The room was idle for longer only if nobody led, so that it
could not go to others, or if the clock was set forward."""
Records = Mapping[str, OvertakenJob | None]
"""By queue, the record of its overtaken job; None: the record ends."""
Claim = tuple[float, str]
"""When a queue's first job was first overtaken, and the queue. The least claim has the reservation."""


class PoolReservation:
    """The holder of the reservation and the liable queues, while picks are made."""

    def __init__(self, queues: Mapping[str, QueueState], pool: Pool, fair_share: FairShare, patience: float) -> None:
        """All belongs to the caller, who calls `add` when a queue is loaded and `consider` when one bids.

        `patience` is that of the jobs, in seconds."""
        self._queues = queues
        self._pool = pool
        self._fair_share = fair_share
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
        claim = self._claim_of(queue, now)
        if self._claim is not None and self._claim[1] == name:
            self.outdated |= claim != self._claim
        else:
            self.outdated |= claim is not None and (self._claim is None or claim < self._claim)

    def choose(self, now: float) -> Candidate | None:
        """Give the reservation to the job that was overtaken first, of those whose patience has ended, and return that
        job; None if there is no such job."""
        self.outdated = False
        claims = (self._claim_of(self._queues[name], now) for name in self._delayed)
        self._claim = min((claim for claim in claims if claim is not None), default=None)
        self.holder = self._queues[self._claim[1]] if self._claim else None
        return None if self.holder is None else self.holder.first

    def _claim_of(self, queue: QueueState, now: float) -> Claim | None:
        since = queue.impatient_since(now, self.patience)
        return None if since is None or (not queue.is_liable and self.is_barred(queue)) else (since, queue.spec.name)

    def is_barred(self, queue: QueueState) -> bool:
        """Return whether no room begins to be reserved for a queue, because it is ahead of its share by more than what
        its first job costs."""
        first = queue.first
        return first is not None and -self._fair_share.lag(queue.spec.name) > self._pool.prices.of(first.demand)

    def bind(self, now: float) -> bool:
        """Make the queue that holds the reservation liable; return whether it became liable just now."""
        queue = self.holder
        if queue is not None and queue.spec.name not in self._liable:
            name = queue.spec.name
            self._unsaved[name] = queue.mark_reserved(now)
            self._liable.add(name)
            return True
        return False

    @property
    def liable(self) -> Collection[str]:
        """The queues with a waiting job for which room is or was reserved."""
        return self._liable

    def drop_withdrawn(self) -> list[str]:
        """Drop the records of jobs for which no room may be reserved any more, and return their queues."""
        names = [name for name in sorted(self._liable) if not self._queues[name].may_be_kept_room]
        for name in names:
            self._release(self._queues[name])
        return names

    def book(self, now: float, hold: float) -> str:
        """Charge the queue that holds the reservation for the time since it was charged last, if that is due.

        `hold` is for how many seconds jobs hold their room; if it is not known, nothing is charged. Return the queue if
        the room was reserved in vain, so that it is free now; else nothing.
        """
        queue = self.holder
        record = None if queue is None else queue.first_overtaken
        if queue is None or record is None or record.kept is None or math.isinf(hold):
            return ""
        seconds = now - record.paid
        if 0 <= seconds < BOOKED_SECONDS:
            return ""
        name, prices = queue.spec.name, self._pool.prices
        idle = self._pool.idle_part(record.kept)
        if idle and seconds > 0:  # the clock may have been set back
            amount = math.ceil(prices.of(idle) * UNIT * min(seconds, MOST_SECONDS) / hold)
            self._fair_share.settle()  # else only a picker that made the picks before would drop who is even by this
            self._fair_share.charge_room(name, amount, queue.spec.weight)
            self._paid = True
        is_spent = -self._fair_share.lag(name) > MOST_JOBS * max(1, record.vain) * prices.of(record.kept)
        if not is_spent:
            queue.overtaken = self._unsaved[name] = replace(record, paid=now)
            return ""
        self._release(queue)
        self.keep(
            queue, replace(record, times=0, kept=None, kept_since=0.0, paid=0.0, impatient=False, vain=record.vain + 1)
        )
        return name

    def settle(self, name: str, cost: int) -> None:
        """Charge a queue without a pick, or refund it if the cost is below 0. Ignore a queue that is not configured."""
        if name not in self._queues:
            return
        if cost < 0:
            self._fair_share.refund(name, -cost)
        else:
            self._fair_share.charge(name, cost, self._queues[name].spec.weight)
        self._paid = True

    def with_pick(self, queue: QueueState, candidate: Candidate, records: Records) -> Records:
        """Return the records of a pick with those that changed before it.

        The pick of the job for which room is reserved ends that.
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

    def settlement(self) -> Settlement:
        """Return the changes that no pick will store. They count as stored from now on."""
        records, self._unsaved = self._unsaved, {}
        paid, self._paid = self._paid, False
        fair_share = self._fair_share
        return Settlement(fair_share.clock, fair_share.changes(), records) if paid else Settlement(None, {}, records)

    def _release(self, queue: QueueState) -> None:
        name = queue.spec.name
        queue.overtaken = self._unsaved[name] = None
        self._liable.discard(name)
        self._delayed.discard(name)
        self.outdated = True
