"""The picker: which job goes next, over all queues.

One rule: pure. The picks depend on what the store showed and on `now`; a picker to which every difference was applied
picks what a new one would pick.

The problem: queues share one pool by weight, but their jobs differ in size. To wait for the job whose turn has come
leaves the pool idle. To take whatever fits, as Kueue's BestEffortFIFO does, starves a large job: small ones take each
bit of room that it needs. Preemption would end jobs for it. So turns come by lag (`queues.picking.fair_share`), and a
job that finds no room at its turn is overtaken for as long as its patience lasts (`queues.rules`). Then it gets the
pool's one reservation, unless that serves a job that was overtaken earlier. A pool of 8 GPUs, 2 of them free:

    second   turn of    asks for   free   what happens, with a patience of 30 seconds
    0        a          8          2      no room; a keeps its turn, and others go first
    0        b          1          2      picked; the patience of a begins
    9        c          1          1      picked
    30       b          1          1      nothing: 8 are reserved, and what becomes free is kept, until a's job begins

A queue pays for reserved room by the time for which it is idle (`queues.picking.kept_room`). Jobs that end before the
room is needed may borrow it (`queues.picking.backfill`). A job that can use further workers takes as many as there
is room for at its turn, and its queue bids with all of that (`queues.picking.further_workers`).

Inside a queue, jobs that fit may pass a first job that does not, unless the queue is StrictFIFO: the first job of each
distinct demand, in order. Once the first job has waited for as long as its patience lasts, it is late: jobs pass it
only if they leave what it needs of the resources that they use, so that its queue's jobs end and make room. Where it
has to borrow, its cohort collects the rest for a time (`queues.picking.collected_room`).
"""

from collections.abc import Callable, Mapping

from crds.keys import JobKey
from crds.resources.amounts import Amounts
from queues.picking import queue_state
from queues.picking.backfill import JobEnds
from queues.picking.fair_share import Turn
from queues.picking.grouped_index import Bid
from queues.picking.kept_room import Records
from queues.picking.picker_state import PickerState
from queues.picking.queue_state import Candidate, QueueState
from queues.values import NONE_OVERTAKEN, Batch, Pick

Choice = tuple[QueueState, Candidate, Turn]
"""The queue that goes next, the job with which it goes, and its position in the order of turns."""


OutsideLimits = Callable[[JobKey, Amounts], bool]
"""Takes room outside of the queues for a demand of a job, and returns whether there was room."""


class Picker(PickerState):
    """Makes picks on a working copy of the queues."""

    outside: OutsideLimits | None = None
    """Asked for each pick; None: nothing outside of the queues limits picks."""
    has_set_aside = False
    """Whether a job was left out for which there is no room outside of the queues."""

    def prepare_loans(self, now: float, job_ends: Callable[[], JobEnds | None]) -> None:
        """Read when jobs end, if room is reserved for a job. It counts for the picks until the next call."""
        self._now = now
        self._refresh()
        self._backfill.drop_other_shadows()
        self._reserve()
        self._backfill.job_ends = job_ends() if self.reservation.holder is not None else None

    def charge_raised(self, queue: str, before: Amounts, after: Amounts) -> None:
        """Charge a queue for a job that takes more than when it was picked."""
        more = self.pool.prices.of(after) - self.pool.prices.of(before)
        if more > 0:
            self.settle(queue, more)

    def picks(self, now: float, limit: int) -> Batch:
        """Return at most `limit` picks, best first; fewer if no more fit, or if a queue's next job is unread.

        `now` is in seconds since 1970.
        """
        self._now = now
        if self.claims.names:
            self.claims.end()
        self._apply()
        self.claims.look(self.patience, now)
        self._refresh()
        if self.reservation.liable:
            self._dirty.update(self.reservation.drop_withdrawn())
            self._refresh_bids()
        self._reserve(bind=True)
        if self.reservation.liable and (spent := self.reservation.book(now, self.patience.hold)):
            self._dirty.add(spent)
            self._refresh_bids()
            self._reserve(bind=True)
        self._backfill.begin_batch(now)
        picks: list[Pick] = []
        while len(picks) < limit and (choice := self._next()):
            queue, candidate, _ = choice
            if self.outside is None or self.outside(candidate.waiting.entry.key, candidate.demand):
                picks.append(self._take(*choice))
            else:
                self._set_aside(queue, candidate)
        snapshot = self._snapshot
        settlement = self.reservation.settlement() if self.reservation.has_unsaved else None
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
        if self.reservation.outdated:
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
        while choice is None and (loan := self._backfill.next(self._allows)):
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
        reserved = self._choice_with_reservation() if self.reservation.holder is not None else None
        return reserved if reserved and (choice is None or reserved[-1] <= choice[-1]) else choice

    def _costs_more(self, queue: QueueState, candidate: Candidate) -> bool:
        """Return whether a job costs more than the one with which its queue bids.

        If so, the queue bids with this job until the next pick: a turn that a small job won must not go to a large job.
        """
        name, cost = queue.spec.name, self.pool.prices.of(queue_state.paid_demand(candidate))
        if cost <= self._fair_share.cost(name):
            return False
        self._fair_share.bid(name, Bid(queue.spec.weight, cost, self.pool.group(queue)))
        queue.bid_demand = None
        self._dirty.add(name)
        return True

    def _choice_with_reservation(self) -> Choice | None:
        """Return the job that holds the reservation, if there is room for it now."""
        queue = self.reservation.holder
        if queue is None or queue.first is None or not self.pool.has_room(queue.first, on_kept=True):
            return None
        job = self._further.enlarge(queue, queue.first) if queue.first.waiting.most else queue.first
        return queue, job, self._fair_share.turn(queue.spec.name)

    def _take(self, queue: QueueState, candidate: Candidate, turn: Turn) -> Pick:
        """Return the pick of a job, with all that it changes, and apply it to the working copy."""
        fair_share, spec, demand = self._fair_share, queue.spec, candidate.demand
        cost = self.pool.prices.of(demand or candidate.waiting.idle_demand)
        overtaken = NONE_OVERTAKEN
        if candidate is not queue.first or fair_share.groups_without_room or spec.cohort:
            overtaken = self._overtake(queue, candidate, turn)
        if self.claims.names and queue.first is not None and candidate.position == queue.first.position:
            self.claims.begin_job(queue)
        if self.reservation.has_unsaved or spec.name in self.reservation.liable:
            overtaken = self.reservation.with_pick(queue, candidate, overtaken)
        fair_share.pay(spec.name, cost)
        clock, accounts = fair_share.clock, fair_share.changes()
        nodes = self.pool.charge(candidate) if self._scarce else ""
        pick = Pick._make((candidate.waiting, cost, clock, accounts, overtaken, candidate.units, nodes))
        queue.take(candidate)
        if spec.cohort:
            cohort = self._cohorts[spec.cohort]
            cohort.charge(spec, demand)
            if not cohort.roomy:
                self._stale_cohorts.add(spec.cohort)
        if self._further.bidding:
            self._dirty |= self._further.outdated_by_pick(spec.cohort)
        self._bid(queue)
        return pick

    def _set_aside(self, queue: QueueState, candidate: Candidate) -> None:
        """Leave out a job for which a limit outside of the queues has no room beside the picks made so far.

        It blocks no other job. The working copy lacks the job then, so that the next round needs a new one. Until then
        the queue goes no further than its known entries, so that other queues need not wait for more of them.
        """
        self.has_set_aside = True
        queue.drop(candidate)
        queue.unread = 0
        self._mark_dirty(queue)
        if queue.spec.cohort:
            self._stale_cohorts.add(queue.spec.cohort)

    def _overtake(self, queue: QueueState, candidate: Candidate, turn: Turn) -> Records:
        """Record the jobs that a pick overtakes, and return the records.

        At most three jobs are overtaken. One is the first job of the first queue that has an earlier turn and finds no
        room. Further such queues do not count, so that a pick's work does not grow with their number. Another one is
        the first job of the picked queue itself, if another job of the queue passes it. A loan passes a third one.
        """
        blocked = self._fair_share.first("waiting") if self._fair_share.groups_without_room else None
        passed = [self._queues[blocked[-1]]] if blocked is not None and blocked < turn else []
        if queue.first is not None and candidate.position != queue.first.position:
            passed.append(queue)
        if queue.spec.cohort and (borrower := self.claims.passed_by(queue, candidate.demand)) is not None:
            passed.append(borrower)
        if not passed:
            return NONE_OVERTAKEN
        self._dirty.update(passed_queue.spec.name for passed_queue in passed)
        records = {passed_queue.spec.name: passed_queue.overtake(self._now) for passed_queue in passed}
        self.claims.note_passed(records)
        return records

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
