"""The picker: which job goes next, over all queues.

One rule: pure. The picks depend on what the store showed and on `now`; a picker to which every difference was applied
picks what a new one would pick.

The turn of a contending queue comes by its lag (`queues.picking.fair_share`). The pool may have no room for the first
job of that queue. Then the queue keeps its turn while others go first, and each pick that overtakes the job counts.
From its first turn on, a job is overtaken at most `patience.times` times and for at most `patience.seconds`. Then the
job's patience ends, and it gets the pool's one reservation, unless that serves a job that was overtaken earlier.
Nothing is admitted into the room that the job needs until the job runs or leaves. Without a reservation a stream of
small jobs would delay a large one without end. A queue pays for reserved room whether the job starts or is withdrawn
(`queues.picking.kept_room`). Jobs that end before the room is needed may borrow it (`queues.picking.backfill`).

A job that can use further workers takes as many as there is room for when its turn comes, and its queue bids with all
of that (`queues.picking.further_workers`).

Inside a queue, jobs that fit may pass a first job that does not, unless the queue is StrictFIFO: the first job of each
distinct demand, in order. Each such pick counts, too. After `queue_bypasses` of them no job passes the first one any
more, so that its queue's jobs end and make room.
"""

from collections.abc import Callable, Mapping

from queues.picking import queue_state
from queues.picking.backfill import JobEnds
from queues.picking.fair_share import Turn
from queues.picking.kept_room import Records
from queues.picking.known_entries import Candidate
from queues.picking.lines import Bid
from queues.picking.picker_state import PickerState
from queues.picking.queue_state import QueueState
from queues.values import NONE_OVERTAKEN, Batch, Pick

Choice = tuple[QueueState, Candidate, Turn]
"""The queue that goes next, the job with which it goes, and its position in the order of turns."""


class Picker(PickerState):
    """Makes picks on a working copy of the queues."""

    def prepare_loans(self, now: float, job_ends: Callable[[], JobEnds | None]) -> None:
        """Read when jobs end, if room is reserved for a job. It counts for the picks until the next call."""
        self._now = now
        self._refresh()
        self._backfill.drop_other_shadows()
        self._reserve()
        self._backfill.job_ends = job_ends() if self._reservation.holder is not None else None

    def picks(self, now: float, limit: int) -> Batch:
        """Return at most `limit` picks, best first; fewer if no more fit, or if a queue's next job is unread.

        `now` is in seconds since 1970.
        """
        self._now = now
        if self.claims.names:
            self.claims.end()
        self._refresh()
        if self._reservation.liable:
            self._dirty.update(self._reservation.collect(self._fair_share, self._rules.cost))
            self._refresh_bids()
        self._reserve(bind=True)
        self._backfill.begin_batch(now)
        picks: list[Pick] = []
        while len(picks) < limit and (choice := self._next()):
            picks.append(self._take(*choice))
        snapshot = self._snapshot
        settlement = self._reservation.settlement(self._fair_share) if self._reservation.has_unsaved else None
        return Batch(
            epoch=snapshot.epoch,
            revision=snapshot.revision,
            picks=tuple(picks),
            settlement=settlement,
            change=snapshot.change,
        )

    def _next(self) -> Choice | None:
        """Return the first queue in the order of turns that has a job with room, and that job."""
        if self._dirty or self._stale_cohorts:
            self._refresh_bids()
        if self._reservation.outdated:
            self._reserve(bind=True)
            self._refresh_bids()
        if self._unread.exhausted or (self._scarce and self.pool.is_exhausted()) or not (choice := self._choose()):
            return None
        if self._fair_share.has_unsettled:
            self._fair_share.settle()
            return self._choose()
        return choice

    def _choose(self) -> Choice | None:
        """Return the first queue with room; where no job fits beside the reservation, a job that borrows from it."""
        choice = self._first_with_room()
        while choice is None and (loan := self._backfill.next(self.allows_passing, self._allows)):
            choice = None if self._costs_more(loan[0], loan[1]) else loan
        return choice

    def _first_with_room(self) -> Choice | None:
        choice = None
        while choice is None and (turn := self._fair_share.first("open")):
            queue = self._queues[turn[-1]]
            candidate = self.pool.first_fitting(queue) if self._scarce else queue.eligible[0]
            if candidate is None:
                self._fair_share.set_state(self.pool.group(queue), "waiting" if queue.reservable else "aside")
            else:
                job = self._further.enlarge(queue, candidate) if candidate.waiting.most else candidate
                if job is queue.eligible[0] or not self._costs_more(queue, job):
                    choice = queue, job, turn
        reserved = self._choice_with_reservation() if self._reservation.holder is not None else None
        return reserved if reserved and (choice is None or reserved[-1] <= choice[-1]) else choice

    def _costs_more(self, queue: QueueState, candidate: Candidate) -> bool:
        """Return whether a job costs more than the one with which its queue bids.

        If so, the queue bids with this job until the next pick: a turn that a small job won must not go to a large job.
        """
        name, cost = queue.spec.name, queue_state.price_of(candidate, self._rules.cost)
        if cost <= self._fair_share.cost(name):
            return False
        self._fair_share.bid(name, Bid(queue.spec.weight, cost, self.pool.group(queue)))
        queue.bid_demand = None
        self._dirty.add(name)
        return True

    def _choice_with_reservation(self) -> Choice | None:
        """Return the job that holds the reservation, if there is room for it now."""
        queue = self._reservation.holder
        if queue is None or queue.first is None or not self.pool.fits_reserved(queue.first.demand):
            return None
        job = self._further.enlarge(queue, queue.first) if queue.first.waiting.most else queue.first
        return queue, job, self._fair_share.turn(queue.spec.name)

    def _take(self, queue: QueueState, candidate: Candidate, turn: Turn) -> Pick:
        """Return the pick of a job, with all that it changes, and apply it to the working copy."""
        fair_share, spec, demand = self._fair_share, queue.spec, candidate.demand
        cost = queue_state.price(demand or candidate.waiting.idle_demand, self._rules.cost)
        overtaken = NONE_OVERTAKEN
        if candidate is not queue.first or fair_share.groups_without_room:
            overtaken = self._overtake(queue, candidate, turn)
        if self.claims.names and queue.first is not None and candidate.position == queue.first.position:
            self.claims.close(spec.name)
        if self._reservation.has_unsaved or spec.name in self._reservation.liable:
            overtaken = self._reservation.with_pick(queue, candidate, overtaken)
        fair_share.pay(spec.name, cost)
        pick = Pick._make((candidate.waiting, cost, fair_share.clock, fair_share.changes(), overtaken, candidate.units))
        queue.take(candidate)
        if self._scarce:
            self.pool.charge(demand)
        if spec.cohort:
            cohort = self._cohorts[spec.cohort]
            cohort.charge(spec, demand)
            if not cohort.roomy:
                self._stale_cohorts.add(spec.cohort)
        if self._further.bidding:
            self._dirty |= self._further.outdated_by_pick(spec.cohort)
        self._bid(queue)
        return pick

    def _overtake(self, queue: QueueState, candidate: Candidate, turn: Turn) -> Records:
        """Record the jobs that a pick overtakes, and return the records.

        At most two jobs are overtaken. One is the first job of the first queue that has an earlier turn and finds no
        room. Further such queues do not count, so that a pick's work does not grow with their number. The other one is
        the first job of the picked queue itself, if another job of the queue passes it.
        """
        blocked = self._fair_share.first("waiting") if self._fair_share.groups_without_room else None
        passed = [self._queues[blocked[-1]]] if blocked is not None and blocked < turn else []
        if queue.first is not None and candidate.position != queue.first.position:
            passed.append(queue)
        if not passed:
            return NONE_OVERTAKEN
        self._dirty.update(passed_queue.spec.name for passed_queue in passed)
        return {passed_queue.spec.name: passed_queue.overtake(self._now) for passed_queue in passed}

    # Entries to read

    @property
    def needs_entries(self) -> Mapping[str, int]:
        """The queues with too few known entries though more wait, and the number of known ones that remain."""
        self._refresh()
        return self._unread.counts()

    def request_entries(self, limit: int) -> Mapping[str, int]:
        """Return those of `needs_entries` with fewer than `limit` entries. They count as requested until
        `add_entries`."""
        self._refresh()
        return self._unread.request(limit)

    @property
    def lacks_entries(self) -> bool:
        """Whether entries must be read before the next pick, or before a queue can take part."""
        self._refresh()
        return bool(self._unread.exhausted or self._unread.only_unrunnable)

    @property
    def only_unrunnable(self) -> bool:
        """Whether only entries that can never run are known of some queue, though others wait behind them.

        Such a queue takes no part in picks until more of its entries are read.
        """
        self._refresh()
        return bool(self._unread.only_unrunnable)

    def partly_read(self, limit: int) -> Mapping[str, int]:
        """Return the queues with fewer than `limit` known entries that need more, because no known one can go now.

        The values are the numbers of known entries that remain.
        """
        self._refresh()
        self._reserve()
        names = self._unread.partly_read
        names.difference_update([name for name in names if self._queues[name].remaining >= limit])
        return {name: self._queues[name].remaining for name in names if self._is_stuck(self._queues[name])}

    def _is_stuck(self, queue: QueueState) -> bool:
        if not queue.remaining or not (queue.first is None or self.allows_passing(queue)):
            return False
        return not (self.pool.first_fitting(queue) if self._scarce else queue.eligible)
