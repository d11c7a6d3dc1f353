"""Loans of reserved room to jobs that end before it is needed: EASY backfilling.

One rule: pure. The job for which room is reserved starts no later than without the jobs that borrow the room.

Room that is reserved for a large job becomes free bit by bit, and is idle until the large job starts. A job whose
`activeDeadlineSeconds` is known has a latest moment at which its room is free. So there may be a moment at which the
large job fits at the latest: its shadow time. This is the first moment at which the room that is free now, together
with the room of the running jobs that have ended by this moment, is enough. A pool of 8, reserved as a whole for one
job at time 0:

    job    uses    free again at the latest
    a          3   60
    b          3   100
    c          1   unknown: it has no deadline

    The large job asks for 7: 1 is free, 4 are at 60, 7 are at 100. Its shadow time is 100.
    The large job asks for 8: it needs the room of c. Its shadow time is unknown, and no job may borrow.

A waiting job may borrow if it fits the room that is free now. The room of this job must be free again at the shadow
time at the latest. Jobs that fit beside the large job need no loan. Only deadlines that are enforced count, never
estimates. Loans are made when no other job can be picked, in the order of turns. The queues of the borrowers pay for
loans as they pay for every pick.

While room is reserved for a job, its shadow time only moves to earlier moments. After the shadow time there are no
loans. A process makes no loans of a reservation that began before this process led: it cannot know the first shadow
time.

Sources: D. Lifka, The ANL/IBM SP Scheduling System, 1995. A. Mu'alem and D. Feitelson, Utilization, Predictability,
Workloads, and User Runtime Estimates in Scheduling the IBM SP2 with Backfilling, IEEE TPDS 12(6), 2001.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field

from crds.keys import JobKey
from crds.resources import amounts
from crds.resources.amounts import Amounts
from queues.picking import queue_state, quotas
from queues.picking.fair_share import FairShare, Turn
from queues.picking.kept_room import PoolReservation
from queues.picking.pool import Pool
from queues.picking.queue_state import Allows, Candidate, QueueState
from queues.picking.quotas import Cohort

End = tuple[float, Amounts]
"""The latest time at which the room of an admitted job is free again, in seconds since 1970, and this room."""
LOANS = 32
"""The most loans in one batch. Each loan costs a look at every queue that has such jobs."""


@dataclass(frozen=True, slots=True)
class JobEnds:
    """When jobs end, as far as it is known."""

    ends: tuple[End, ...]
    """The ends of admitted jobs, the earliest first."""
    longest: Mapping[str, float]
    """By the key in a job's ticket (`WaitingEntry.ticket`): the largest number of seconds from the job's pick until its
    room is free again. A job that is missing here may run for any time.
    """
    queues: frozenset[str]
    """The queues that have waiting jobs in `longest`."""


def no_job_ends() -> JobEnds | None:
    """Return None, for a process that knows no deadlines and makes no loans."""
    return None


def shadow_time(demand: Amounts, used: Amounts, capacity: Amounts, ends: Iterable[End], now: float) -> float | None:
    """Return the first moment at which a demand fits at the latest, in seconds since 1970; None if it is unknown.

    `ends` are in the order of time. An end in the past does not count: the job is late, and may stay for any time.
    """
    lacking = {
        name: lack
        for name, amount in demand.items()
        if (limit := amounts.limit_for(capacity, name)) is not None and (lack := used.get(name, 0) + amount - limit) > 0
    }
    if not lacking:
        return now
    for end, charge in ends:
        if end <= now:
            continue
        lacking = {name: rest for name, lack in lacking.items() if (rest := lack - charge.get(name, 0)) > 0}
        if not lacking:
            return end
    return None


class Shadows:
    """The shadow times of the jobs for which this process has reserved room."""

    def __init__(self) -> None:
        self._times: dict[JobKey, float | None] = {}

    def begin(self, job: JobKey) -> None:
        """Note that this process has reserved room for a job."""
        self._times.setdefault(job, None)

    def drop_others(self, jobs: Collection[JobKey]) -> None:
        """Drop the shadow times of all other jobs."""
        for job in self._times.keys() - set(jobs):
            del self._times[job]

    def lower(self, job: JobKey, compute: Callable[[], float | None]) -> float | None:
        """Return the earlier of a job's last shadow time and the computed shadow time; None if both are unknown."""
        if job not in self._times:
            return None
        before, computed = self._times[job], compute()
        if before is None or (computed is not None and computed < before):
            self._times[job] = before = computed
        return before


@dataclass(slots=True)
class Backfill:
    """The loans of one picker. Everything here except the shadow times belongs to the picker."""

    _queues: Mapping[str, QueueState]
    _cohorts: Mapping[str, Cohort]
    _pool: Pool
    _fair_share: FairShare
    _reservation: PoolReservation
    _shadows: Shadows
    job_ends: JobEnds | None = None
    _now: float = 0.0
    _loans: int = 0
    _candidates: set[str] = field(default_factory=set)
    """Queues that may have a job that can borrow."""
    _shadow: tuple[JobKey, float | None] | None = None
    """The job for which room is reserved, and its shadow time. None until the shadow time was computed in this
    batch.
    """

    def begin_batch(self, now: float) -> None:
        """Begin a batch of picks."""
        self._now, self._loans, self._shadow = now, LOANS, None
        self._candidates = set(self.job_ends.queues & self._queues.keys()) if self.job_ends is not None else set()

    def begin_reservation(self) -> None:
        """Note that this process has reserved room for the job that holds the reservation."""
        holder = self._reservation.holder
        if holder is not None and holder.first is not None:
            self._shadows.begin(holder.first.waiting.entry.key)

    def drop_other_shadows(self) -> None:
        """Drop the shadow times of jobs for which no room is reserved any more."""
        records = (self._queues[name].overtaken for name in self._reservation.liable)
        self._shadows.drop_others([record.key for record in records if record is not None])

    def next(self, allows: Allows) -> tuple[QueueState, Candidate, Turn] | None:
        """Return the first job in the order of turns that may borrow; None if no job may borrow."""
        until = self._shadow_time() if self._candidates and self._loans else None
        best: tuple[QueueState, Candidate, Turn] | None = None
        for name in sorted(self._candidates) if until is not None else ():
            queue = self._queues[name]
            short = (
                candidate
                for candidate in self._runnable(queue)
                if until is not None and self._ends_by(candidate, until)
            )
            job = next((candidate for candidate in short if self._allows(queue, candidate, allows)), None)
            if job is None:
                self._candidates.discard(name)
            elif best is None or self._fair_share.turn(name) < best[-1]:
                best = queue, job, self._fair_share.turn(name)
        self._loans -= best is not None
        return best

    def _shadow_time(self) -> float | None:
        holder = self._reservation.holder
        if self.job_ends is None or holder is None or holder.first is None:
            return None
        job, demand, ends = holder.first.waiting.entry.key, holder.first.demand, self.job_ends.ends
        if self._shadow is None or self._shadow[0] != job:
            pool = self._pool
            time = self._shadows.lower(job, lambda: shadow_time(demand, pool.used, pool.capacity, ends, self._now))
            self._shadow = job, time
        return self._shadow[1]

    def _runnable(self, queue: QueueState) -> Iterable[Candidate]:
        """Return the jobs of a contending queue that its order allows, in order. The job with the reservation is left
        out.
        """
        first = queue.first if queue.eligible else None
        if first is None:
            return ()
        jobs = (first,) if queue.spec.strict else queue.runnable()
        return (job for job in jobs if job.position != first.position or queue is not self._reservation.holder)

    def _ends_by(self, candidate: Candidate, until: float) -> bool:
        """Return whether there is room for a job now, and this room is free again at `until` at the latest."""
        key, _, kind = candidate.waiting.ticket
        longest = self.job_ends.longest.get(key) if self.job_ends is not None and kind == "admit" else None
        return longest is not None and self._now + longest <= until and self._pool.has_room(candidate, on_kept=True)

    def _allows(self, queue: QueueState, candidate: Candidate, allows: Allows) -> bool:
        """Return whether quota and cohort allow a job and leave enough for other jobs: what the job with the
        reservation needs and, if the first job of its queue has an open claim, what this first job needs.

        Otherwise the reserved room would stay idle.
        """
        first, holder, demand = queue.first, self._reservation.holder, candidate.demand
        if first is None or holder is None or holder.first is None or not allows(queue, demand):
            return False
        passes = candidate.position != first.position
        guards = passes and (queue.is_liable or queue.is_claimed)
        if guards and not allows(queue, queue_state.with_needed(demand, first.demand)):
            return False
        cohort = self._cohorts.get(queue.spec.cohort)
        apart = cohort is None or queue is holder or holder.spec.cohort != queue.spec.cohort
        return apart or cohort is None or quotas.leaves_room(cohort, demand, holder, holder.first.demand)
