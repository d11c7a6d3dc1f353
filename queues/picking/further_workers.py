"""How many further workers a job gets at its turn, beside the workers without which it does not begin.

One rule: pure. A number of workers is allowed only if every smaller one is.

An entry's `demand` is the least that the job takes. Everything before the turn uses this demand: whether the job is
eligible, what it claims of its cohort, the room that the pool reserves for it, and loans. At its turn, the job takes
further workers in steps: the largest number that its queue, its cohort and the pool allow beside what other jobs claim
or have reserved.

The queue bids with the whole amount that the job would take now, so that a turn that a small job wins does not go to a
large job. Such a bid is outdated when the room for which it was made changes. While the pool has room for the largest
of these jobs, a pick outdates only the bids in its own cohort.

A growth is a request of an admitted job. The `demand` of a growth is one step, or the whole growth if the growth is
granted either as a whole or not at all.
"""

from collections.abc import Callable, Mapping, Set

from crds.resources import amounts
from crds.resources.amounts import NOTHING, Amounts
from queues.picking import quotas
from queues.picking.kept_room import PoolReservation
from queues.picking.pool import Pool
from queues.picking.queue_state import Candidate, QueueState
from queues.picking.quotas import Cohort

_Room = tuple[QueueState | None, Amounts, Amounts]
"""The holder of the pool's reservation, and the usage of the pool without and with it."""
_NONE: Set[str] = frozenset()


class FurtherWorkers:
    """The amounts that jobs with a range take now, and the queues that bid with such an amount."""

    def __init__(self, cohorts: Mapping[str, Cohort], pool: Pool, reservation: PoolReservation) -> None:
        """All arguments belong to the picker."""
        self._cohorts = cohorts
        self._pool = pool
        self._reservation = reservation
        self.bidding: set[str] = set()
        """The queues whose bids may be larger than the least amount of their jobs."""
        self._peak = NOTHING
        """The largest amount of each resource in any bid of these queues."""
        self._room: _Room = None, NOTHING, NOTHING
        """The room for which the bids were made."""

    def enlarge(self, queue: QueueState, candidate: Candidate) -> Candidate:
        """Return a job with the further workers for which there is room now."""
        first, cohort = queue.first, self._cohorts.get(queue.spec.cohort)
        is_first = first is not None and candidate.position == first.position
        on_kept = is_first and queue is self._reservation.holder
        in_pool = self._pool.fits_reserved if on_kept else self._pool.fits
        passed = first if not is_first and (queue.is_liable or queue.is_claimed) else None

        def allows(queue: QueueState, demand: Amounts) -> bool:
            return quotas.allows_further(queue, candidate, demand, cohort)

        def accepts(units: int) -> bool:
            demand = candidate.waiting.demand_with(units)
            fits = in_pool(demand) and allows(queue, demand)
            fits = fits and self._pool.finds_nodes(candidate, units, on_kept=on_kept)
            return fits and (passed is None or queue.leaves_room(allows, passed.demand, demand))

        units = largest(candidate.waiting.most, candidate.waiting.entry.step, accepts)
        demand = candidate.waiting.demand_with(units)
        return Candidate(candidate.waiting, demand, candidate.position, units) if units else candidate

    def job_of_bid(self, queue: QueueState) -> Candidate:
        """Return the job with which a queue bids, at its present size: the first eligible job."""
        job, name = queue.eligible[0], queue.spec.name
        if not job.waiting.most or not self._pool.prices.count(job.waiting.entry.unit):
            self.bidding.discard(name)
            return job
        job = self.enlarge(queue, job)
        self.bidding.add(name)
        self._peak = amounts.peak(self._peak, job.demand)
        return job

    def outdated(self) -> Set[str]:
        """Return the queues that must bid again, because the room in the pool is another one than at their bids."""
        room = self._present_room() if self.bidding else self._room
        if room == self._room:
            return _NONE
        self._room, self._peak = room, NOTHING
        return frozenset(self.bidding)

    def outdated_by_pick(self, cohort: str) -> Set[str]:
        """Return the queues that must bid again after a pick in a cohort; an empty name means no cohort."""
        self._room = self._present_room()
        if not self._pool.fits(self._peak):
            self._peak = NOTHING
            return frozenset(self.bidding)
        return self.members(cohort)

    def members(self, cohort: str) -> Set[str]:
        """Return the queues of a cohort that bid with further workers."""
        return self.bidding & self._cohorts[cohort].queues.keys() if cohort and self.bidding else _NONE

    def _present_room(self) -> _Room:
        return self._reservation.holder, dict(self._pool.used), dict(self._pool.used_or_reserved)


def largest(most: int, step: int, accepts: Callable[[int], bool]) -> int:
    """Return the largest multiple of `step` up to `most` that `accepts` accepts; 0 if there is none."""
    low, high = 0, most // step
    middle = high
    while low < high:
        if accepts(middle * step):
            low = middle
        else:
            high = middle - 1
        middle = (low + high + 1) // 2
    return low * step
