"""The room of a cohort that is collected for one job that has to borrow.

One rule: who collects, and until when, follows from the records that the store holds, so that a new picker goes on.

The problem: nobody has a right to borrow, so a loan is given as soon as the cohort has room for it. A job that asks for
more than its queue's quota has to borrow the rest. Where other queues borrow small amounts without end, this rest is
never free at once, and the large job starves. So one job of each cohort collects: loans of the other members leave all
that it asks for. A cohort of 12, of which a lends 4, and b and c have 4 each. Queue c uses nothing and asks for 8:

    second   in use by a, b        what happens, where b's jobs have run for 10 seconds
    0        3 (of 4), 9 (of 4)    b borrows; c is passed for the first time
    10       3, 9                  c collects: 4 are left for a and b beside its 8
    14       3, 5                  jobs of b have ended; b borrows nothing
    15       4, 4                  a takes its quota back at once, because no claim concerns it. Another job of b has
                                   ended, and c begins

A job begins to collect once loans have passed it for as long as its patience lasts: the median age of what the members
beyond their quotas run. By the rule of `queues.rules`, half of that ends within the same time again, and two thirds
within twice that time. So what was not collected by then (30 seconds at least) is held by jobs that may never end, such
as those of a member within its quota, and everything collected is free for loans again. The next one collects that was
passed first. The job itself waits for a pause before it collects again: twice as long as it collects then, and twice as
long again after each further time in vain. So the cohort idles an ever smaller part of the time for a job that never
fits. Where an owner withdraws the job, the next first job of the queue inherits the pause.

Nobody pays: a member that uses its own quota is never refused, and others have no right to a loan. Only a job that its
own queue's limits allow beside what this queue uses may collect: else its owner's jobs could make it wait in vain.
"""

from collections.abc import Mapping
from dataclasses import replace

from crds.resources.amounts import Amounts
from queues.picking import quotas
from queues.picking.kept_room import PoolReservation, Records
from queues.picking.open_claims import OpenClaims
from queues.picking.queue_state import QueueState
from queues.picking.quotas import Cohort
from queues.rules import LEAST_PATIENCE, Patience
from queues.values import OvertakenJob

PATIENCES = 2
"""The time for which room is collected, as a multiple of the patience with which it began."""
LEAST_SECONDS = LEAST_PATIENCE
"""The least time for which room is collected: jobs that have just begun say little about when they end."""


class CohortClaims(OpenClaims):
    """The open claims, and the jobs for which cohorts collect, while picks are made."""

    def __init__(
        self, queues: Mapping[str, QueueState], cohorts: Mapping[str, Cohort], reservation: PoolReservation
    ) -> None:
        """See OpenClaims; `cohorts` belongs to the caller, too."""
        super().__init__(queues, reservation)
        self._cohorts = cohorts
        self._recorded: set[str] = set()
        """Queues of cohorts that have a record."""

    def add(self, queue: QueueState) -> None:
        """See OpenClaims."""
        super().add(queue)
        if queue.overtaken is not None and queue.spec.cohort:
            self._recorded.add(queue.spec.name)
            self._looked = None

    def note_passed(self, records: Records) -> None:
        """See OpenClaims."""
        super().note_passed(records)
        self._recorded.update(name for name in records if self._queues[name].spec.cohort)

    def passed_by(self, queue: QueueState, demand: Amounts) -> QueueState | None:
        """Return a queue whose first job has to borrow, and is passed for the first time by a pick of another member.

        A pick passes one such job at most, so that its work does not grow with their number."""
        cohort = self._cohorts.get(queue.spec.cohort)
        if cohort is None or cohort.roomy or not quotas.beyond(queue.spec.quota, queue.used, demand):
            return None
        waiting = (name for name, other in cohort.queues.items() if other is not queue and not _was_passed(other))
        name = min((name for name in waiting if quotas.lacks_loan(self._queues[name], cohort)), default=None)
        return None if name is None else self._queues[name]

    def _look(self, patience: Patience, now: float) -> None:
        """See OpenClaims. End the collections that are over, and begin one in each cohort that has none and a job that
        is due."""
        super()._look(patience, now)
        collecting: set[str] = set()
        for queue in self._by_time():
            record, cohort = queue.overtaken, queue.spec.cohort
            if record is None or not record.collected_until:
                continue
            may_collect = queue.collects and quotas.may_borrow(queue) and cohort not in collecting
            if queue.is_exhausted or (may_collect and now < record.collected_until):
                collecting.add(cohort)
            else:
                self._end(queue, now)
        for queue in self._by_time():
            if queue.spec.cohort not in collecting and self._begin(queue, patience, now):
                collecting.add(queue.spec.cohort)

    def begin_job(self, queue: QueueState) -> None:
        """Note that the first job of a queue begins. If it collected, the pause of its queue ends."""
        if queue.collects and queue.overtaken is not None:
            self._reservation.keep(queue, replace(queue.overtaken, collected_until=0.0, uncollected=0))
        self.close(queue.spec.name, late=False)

    def _by_time(self) -> list[QueueState]:
        """Return the queues whose first jobs collect or were passed, by when they were passed first."""
        # A record stays while another job is first: the recorded one may be the first again after a pick.
        self._recorded = {name for name in self._recorded if self._queues[name].overtaken is not None}
        return sorted((queue for name in self._recorded if _counts(queue := self._queues[name])), key=_since)

    def _begin(self, queue: QueueState, patience: Patience, now: float) -> bool:
        """Begin to collect for a queue's first job if its patience or its pause has ended; return whether that is
        so."""
        record, cohort = queue.first_overtaken, self._cohorts[queue.spec.cohort]
        if record is None or not record.times or now <= record.since or not quotas.lacks_loan(queue, cohort):
            return False
        lasts = patience.among(cohort.borrowers())
        seconds = max(LEAST_SECONDS, PATIENCES * lasts)
        if now - record.since < (seconds * 2**record.uncollected if record.uncollected else lasts):
            return False
        self._change(queue, replace(record, late=True, collected_until=now + seconds))
        return True

    def _end(self, queue: QueueState, now: float) -> None:
        """End a collection that was in vain."""
        record = queue.overtaken
        if record is not None:
            rest = replace(record, times=0, since=now, collected_until=0.0, uncollected=record.uncollected + 1)
            self._change(queue, rest)

    def _change(self, queue: QueueState, record: OvertakenJob) -> None:
        self._reservation.keep(queue, record)
        self._cohorts[queue.spec.cohort].note_claim(queue)
        self.add(queue)
        self.outdated.add(queue.spec.name)


def _was_passed(queue: QueueState) -> bool:
    record = queue.first_overtaken
    return record is not None and record.times > 0


def _counts(queue: QueueState) -> bool:
    return _was_passed(queue) or (queue.overtaken is not None and queue.overtaken.collected_until > 0)


def _since(queue: QueueState) -> tuple[float, str]:
    record: OvertakenJob | None = queue.overtaken
    return (0.0 if record is None else record.since), queue.spec.name
