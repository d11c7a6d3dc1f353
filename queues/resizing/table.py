"""Who may give workers back to a waiting job: the table of giving back.

One rule: the table says who may be asked, and in which order. Whether that is enough is for the caller to see.

A waiting job may lack room in several limits. Each is judged by its row, one after the other. The tiers of a row are
asked in order, and in a tier the most fulfilled job first:

    the first job of a queue lacks              who may give
    its queue's quota                           idle growth of the queue;
                                                then what its jobs of a lower priority have above their least
    its cohort's room, and its quota covers it  idle growth of members above their quota; of the other members;
                                                then what jobs have above their least in queues above their quota
    the pool, and it holds the reservation      idle growth, of the queue furthest above its share first;
                                                then what jobs have above their least in queues above their share,
                                                unless the waiting job's own queue is above its share

Above its least, but below what its owner asked for, only a job with autoscale gives. In all other cases (a job that
borrows, or that has no reservation, or that may pass the first one of its queue) idle growth alone may go. For idle
growth keeps no job out: what would go at once if there were none goes as soon as the workers have ended. So where idle
growth alone keeps a first job out of the pool, its patience ends at once. Where paid workers could make room for it,
its patience ends when it has waited for as long as the patience lasts, even if no other job has overtaken it.

A pool of 12, with queues a and b of equal weights. `idle` is part of the workers; e1 and e2 are of a, e3 is of b:

    job   workers  least  most  idle   fulfilled
    e1          5      2     8     2   3/6
    e2          4      1     4     1   3/3
    e3          3      1     3     0   2/2

    b's first job asks for 1: e2 gives 1 (idle, the most fulfilled).
    It asks for 3: e2 gives 1, e1 gives 2: all idle growth.
    It asks for 5, and holds the reservation: then a, which has paid for 6 of its 9, is not above its share of 6.
    Nobody gives, for no queue may be asked for the other 2.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import chain
from typing import NamedTuple

from crds.keys import JobKey
from crds.resources.amounts import Amounts
from queues.picking.known_entries import Candidate
from queues.picking.queue_state import QueueState
from queues.resizing.givers import Giver
from queues.resizing.room import Limit, Room
from queues.resizing.shares import Shares
from queues.resizing.victims import Tier

Givers = Mapping[str, Sequence[Giver]]
"""The jobs that can give, by queue."""


class Waiting(NamedTuple):
    """A waiting job that may be given room."""

    queue: QueueState
    candidate: Candidate
    is_first: bool
    """Whether it is the first job of its queue."""
    may_take_paid: bool
    """Whether paid workers may make room for it in the pool: it holds the pool's reservation, or gets it next."""

    @property
    def demand(self) -> Amounts:
        """The least that the job takes."""
        return self.candidate.demand

    @property
    def key(self) -> JobKey:
        """The key of the job."""
        return self.candidate.waiting.entry.key


class TableRow(NamedTuple):
    """Who may be asked because of one limit."""

    limit: Limit
    tiers: Iterable[Tier]
    within_quota: bool = False
    """Whether the room must be found in the own quota of the job's queue, so that nothing is borrowed."""


class Table:
    """The rows for each waiting job."""

    def __init__(self, room: Room, givers: Givers, shares: Shares) -> None:
        """All of it belongs to the caller, who may change it."""
        self._room = room
        self._givers = givers
        self._shares = shares

    @cached_property
    def _idle_of_all(self) -> Tier:
        return Tier(self._all(), "idle", first=self._shares.above)

    def attempts(self, waiting: Waiting) -> Iterator[Sequence[TableRow]]:
        """Yield the rows to try, one after the other, until the job fits."""
        claims = waiting.is_first and self._room.covers(waiting.queue, waiting.demand)
        pool = TableRow("pool", self._pool(waiting))
        yield TableRow("quota", self._quota(waiting)), TableRow("cohort", self._cohort(waiting, claims=claims)), pool
        if waiting.is_first and waiting.queue.spec.cohort and not claims:
            own = TableRow("quota", [self._idle_of(waiting)], within_quota=True)
            yield own, TableRow("cohort", self._cohort(waiting, claims=True)), pool

    def _quota(self, waiting: Waiting) -> Iterator[Tier]:
        yield self._idle_of(waiting)
        if waiting.is_first:
            priority = waiting.candidate.waiting.entry.priority
            yield Tier([giver for giver in self._of(waiting) if giver.job.priority < priority], "paid")

    def _cohort(self, waiting: Waiting, *, claims: bool) -> Iterator[Tier]:
        cohort = self._room.cohort(waiting.queue)
        members = [] if cohort is None else [giver for name in cohort.queues for giver in self._givers.get(name, ())]
        yield Tier(members, "idle", self._room.borrows)
        yield Tier(members, "idle")
        if claims:
            yield Tier(members, "paid", self._room.borrows)

    def _pool(self, waiting: Waiting) -> Iterator[Tier]:
        yield self._idle_of_all
        if waiting.may_take_paid and self._shares.paid_above(waiting.queue.spec.name) <= 0:
            yield Tier(self._all(), "paid", lambda queue: self._shares.paid_above(queue) > 0, self._shares.paid_above)

    def _all(self) -> Iterator[Giver]:
        return chain.from_iterable(self._givers.values())

    def _idle_of(self, waiting: Waiting) -> Tier:
        return Tier(self._of(waiting), "idle")

    def _of(self, waiting: Waiting) -> Sequence[Giver]:
        return self._givers.get(waiting.queue.spec.name, ())
