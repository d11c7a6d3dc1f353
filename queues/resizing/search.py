"""The search for room for waiting jobs, one after the other, within the time of one plan.

One rule: what is cheap to see comes first. A waiting job for which even all that may go is not enough costs no search.
"""

from collections.abc import Sequence

from crds.resources import amounts
from crds.resources.amounts import Amounts
from queues.picking.queue_state import QueueState
from queues.resizing.givers import Giver
from queues.resizing.room import Room
from queues.resizing.shares import Shares
from queues.resizing.table import Givers, Table, TableRow, Waiting
from queues.resizing.victims import Victims

_SEARCHES = 64
_LOOKS = 2_000
"""The most searches in one plan, and the most looks at elastic jobs. The waiting jobs behind are served by the next
plans."""


class Search:
    """The searches of one plan."""

    def __init__(self, room: Room, givers: Givers, shares: Shares) -> None:
        """All of it belongs to the caller, and changes with each search that finds room."""
        self._room = room
        self._givers = givers
        self._cohorts = {room.queues[name].spec.cohort for name in givers}
        self._table = Table(room, givers, shares)
        self._searches, self._looks = _SEARCHES, _LOOKS
        self._least_used = self._without_idle()
        """What the pool uses once all idle growth is gone that can go."""

    @property
    def is_tired(self) -> bool:
        """Whether this plan has searched enough."""
        return self._searches <= 0 or self._looks <= 0

    def charge(self, demand: Amounts) -> None:
        """Note that a waiting job has got room."""
        amounts.increase(self._least_used, demand)

    def may_serve(self, queue: QueueState) -> bool:
        """Return whether some waiting job of a queue may find room in the pool."""
        return not queue.uniform or (queue.first is not None and self._may_fit(queue.first.demand))

    def find(self, waiting: Waiting) -> Sequence[Giver]:
        """Return the jobs that give room to a job that lacks it; none if all that may go is not enough."""
        if self.is_tired or not (waiting.may_take_paid or self._may_fit(waiting.demand)):
            return ()
        if not self._has_givers(waiting):
            return ()
        self._searches -= 1
        for rows in self._table.attempts(waiting):
            victims = Victims(self._room, waiting.key)
            if all(self._ask(victims, waiting, row) for row in rows):
                victims.spare(self._fits_within if rows[0].within_quota else self._fits, waiting)
                for job, workers in victims.paid:
                    amounts.increase(self._least_used, job.unit, -workers)
                return victims.givers
            victims.undo()
        return ()

    def _has_givers(self, waiting: Waiting) -> bool:
        """Return whether any job may be asked because of the first limit that a waiting job lacks."""
        limit, spec = self._room.lacks(waiting.queue, waiting.demand), waiting.queue.spec
        return limit == "pool" or (spec.name in self._givers if limit == "quota" else spec.cohort in self._cohorts)

    def _ask(self, victims: Victims, waiting: Waiting, row: TableRow) -> bool:
        """Ask the tiers of a row, and return whether its limit lacks nothing any more."""

        def lacking() -> Amounts:
            if row.within_quota:
                return self._room.beyond_quota(waiting.queue, waiting.demand)
            return self._room.lacking(row.limit, waiting.queue, waiting.demand)

        def counts(queue: str, name: str) -> bool:
            return self._room.counts(row.limit, queue, name)

        if not lacking():
            return True
        for tier in row.tiers:
            self._looks, tier.looked_at = self._looks - tier.looked_at, 0
            if victims.take(tier, lacking, counts):
                return True
        return False

    def _fits(self, waiting: Waiting) -> bool:
        return self._room.fits(waiting.queue, waiting.demand)

    def _fits_within(self, waiting: Waiting) -> bool:
        """Return whether a job fits, and borrows nothing."""
        return self._fits(waiting) and self._room.covers(waiting.queue, waiting.demand)

    def _may_fit(self, demand: Amounts) -> bool:
        return amounts.fits(demand, self._least_used, self._room.capacity)

    def _without_idle(self) -> dict[str, int]:
        used = dict(self._room.pool_used)
        for givers in self._givers.values():
            for giver in givers:
                if giver.idle:
                    amounts.increase(used, giver.job.unit, -giver.idle)
        return used
