"""Lending room that is kept for one job to others that end before it is needed: EASY backfilling.

One rule: pure. A job for which room is kept starts no later than without the jobs that its room is lent to.

Room is kept for a large job while it becomes free bit by bit, and is idle meanwhile. Jobs whose `activeDeadlineSeconds`
are known have a latest moment at which their room is free. So there may be a moment at which the large job fits at the
latest, its shadow time: the first at which the room that is free now, with that of the running jobs that have ended by
then, is enough. A pool of 8, of which all is kept for one job at time 0:

    job    holds   free again at the latest
    a          3   60
    b          3   100
    c          1   unknown: it has no deadline

    The large job asks for 7: 1 is free, 4 are at 60, 7 are at 100. Its shadow time is 100.
    The large job asks for 8: it needs the room of c. Its shadow time is unknown, and nothing is lent.

A waiting job that fits the room that is free now, and whose room is free again at the shadow time at the latest, may go
first. Jobs that fit beside the large one need no loan. Only deadlines that are enforced count, never estimates. Loans
are made where nothing else can go, in the order of turns, and are paid for like every pick.

While room is kept for a job, its shadow time only moves to earlier moments, and when it has passed nothing is lent any
more. A process that did not begin to keep the room itself, because another process led before, lends nothing of it: it
cannot know what was found first.

Sources: D. Lifka, The ANL/IBM SP Scheduling System, 1995. A. Mu'alem and D. Feitelson, Utilization, Predictability,
Workloads, and User Runtime Estimates in Scheduling the IBM SP2 with Backfilling, IEEE TPDS 12(6), 2001.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass

from crds.keys import JobKey
from crds.resources import amounts
from crds.resources.amounts import Amounts
from queues.picking import quotas
from queues.picking.fair_share import Ledger, Turn
from queues.picking.kept_room import KeptRoom
from queues.picking.pool import Pool
from queues.picking.queue_state import Candidate, Lane, Lets
from queues.picking.quotas import Cohort

End = tuple[float, Amounts]
"""When the room of an admitted job is free again at the latest, in seconds since 1970; and how much that is."""
LOANS = 32
"""Jobs that room is lent to in one batch, at most: for each one every queue that has such jobs is looked at."""


@dataclass(frozen=True, slots=True)
class Forecast:
    """What is known about when jobs end."""

    ends: tuple[End, ...]
    """Of admitted jobs, the first one first."""
    longest: Mapping[str, float]
    """By the key as a ticket has it (`Waiting.ticket`), how many seconds after its pick a waiting job's room is free
    again at the latest. Other jobs may take any time."""
    queues: frozenset[str]
    """The queues in which these jobs wait."""


def no_forecast() -> Forecast | None:
    """Of a process that knows no deadlines: nothing is lent."""
    return None


def shadow_time(demand: Amounts, used: Amounts, capacity: Amounts, ends: Iterable[End], now: float) -> float | None:
    """The first moment at which the demand fits at the latest, in seconds since 1970; None if that is unknown. `ends`
    are in the order of their time. Ends that are over do not count: what should be gone by now may stay for ever."""
    lacking = {
        name: lack
        for name, asked in demand.items()
        if (most := amounts.most(capacity, name)) is not None and (lack := used.get(name, 0) + asked - most) > 0
    }
    if not lacking:
        return now
    for end, charge in ends:
        if end <= now:
            continue
        lacking = {name: left for name, lack in lacking.items() if (left := lack - charge.get(name, 0)) > 0}
        if not lacking:
            return end
    return None


class Shadows:
    """The shadow times of the jobs for which room is or was kept, since this process has kept it."""

    def __init__(self) -> None:
        self._times: dict[JobKey, float | None] = {}

    def begin(self, job: JobKey) -> None:
        """From now on room is kept for a job, by the word of this process."""
        self._times.setdefault(job, None)

    def keep(self, jobs: Collection[JobKey]) -> None:
        """Forget all other jobs."""
        for job in self._times.keys() - set(jobs):
            del self._times[job]

    def lower(self, job: JobKey, found: Callable[[], float | None]) -> float | None:
        """The job's shadow time, with what is found now: it never moves to a later moment. None if it is unknown."""
        if job not in self._times:
            return None
        known, new = self._times[job], found()
        if known is None or (new is not None and new < known):
            self._times[job] = known = new
        return known


class Backfill:
    """The loans of one race; everything but the shadow times is as the race has it."""

    def __init__(
        self,
        lanes: Mapping[str, Lane],
        cohorts: Mapping[str, Cohort],
        pool: Pool,
        ledger: Ledger,
        kept: KeptRoom,
        shadows: Shadows,
    ) -> None:
        self._lanes = lanes
        self._cohorts = cohorts
        self._pool = pool
        self._ledger = ledger
        self._kept = kept
        self._shadows = shadows
        self.forecast: Forecast | None = None
        self._now = 0.0
        self._loans = 0
        self._hopeful: set[str] = set()
        """Queues that may have a job to which room can be lent."""
        self._until: tuple[JobKey, float | None] | None = None
        """For whom room is kept, and the shadow time, once it was asked for in this batch."""

    def begin(self, now: float) -> None:
        """A batch of picks begins."""
        self._now, self._loans, self._until = now, LOANS, None
        self._hopeful = set(self.forecast.queues & self._lanes.keys()) if self.forecast is not None else set()

    def keep(self) -> None:
        """Room is kept for the job that holds the reservation, from now on."""
        holder = self._kept.holder
        if holder is not None and holder.first is not None:
            self._shadows.begin(holder.first.waiting.entry.key)

    def remember(self) -> None:
        """Forget what was found for jobs for which no room is kept any more."""
        records = (self._lanes[name].overtaken for name in self._kept.bound)
        self._shadows.keep([each.key for each in records if each is not None])

    def next(self, passes: Callable[[Lane], bool], lets: Lets) -> tuple[Lane, Candidate, Turn] | None:
        """The first job in the order of turns that room is lent to; None if there is none. `passes`: whether jobs of a
        queue may pass its first one."""
        until = self._shadow_time() if self._hopeful and self._loans else None
        best: tuple[Lane, Candidate, Turn] | None = None
        for name in sorted(self._hopeful) if until is not None else ():
            lane = self._lanes[name]
            short = (each for each in self._possible(lane, passes) if until is not None and self._ends(each, until))
            candidate = next((each for each in short if self._lets(lane, each, lets)), None)
            if candidate is None:
                self._hopeful.discard(name)
            elif best is None or self._ledger.turn(name) < best[-1]:
                best = lane, candidate, self._ledger.turn(name)
        self._loans -= best is not None
        return best

    def _shadow_time(self) -> float | None:
        holder = self._kept.holder
        if self.forecast is None or holder is None or holder.first is None:
            return None
        job, demand, ends = holder.first.waiting.entry.key, holder.first.demand, self.forecast.ends
        if self._until is None or self._until[0] != job:
            pool = self._pool
            found = self._shadows.lower(job, lambda: shadow_time(demand, pool.used, pool.capacity, ends, self._now))
            self._until = job, found
        return self._until[1]

    def _possible(self, lane: Lane, passes: Callable[[Lane], bool]) -> Iterable[Candidate]:
        """The jobs of a contending queue that its order lets go, first ones first; not the one that holds the
        reservation."""
        first = lane.first if lane.offers else None
        if first is None:
            return ()
        found = lane.possible() if passes(lane) else (first,)
        return (each for each in found if each.at != first.at or lane is not self._kept.holder)

    def _ends(self, candidate: Candidate, until: float) -> bool:
        """Whether the job's room is free again at that time, and there is room for the job now."""
        key, _, kind = candidate.waiting.ticket
        longest = self.forecast.longest.get(key) if self.forecast is not None and kind == "admit" else None
        return longest is not None and self._now + longest <= until and self._pool.fits_reserved(candidate.demand)

    def _lets(self, lane: Lane, candidate: Candidate, lets: Lets) -> bool:
        """Whether quota and cohort let the job go, and leave what the job needs for which room is kept: the room would
        be idle in vain."""
        first, holder, demand = lane.first, self._kept.holder, candidate.demand
        if first is None or holder is None or holder.first is None or not lets(lane, demand):
            return False
        if candidate.at != first.at and lane.bound and not lets(lane, amounts.add(first.demand, demand)):
            return False
        cohort = self._cohorts.get(lane.spec.cohort)
        apart = cohort is None or lane is holder or holder.spec.cohort != lane.spec.cohort
        return apart or cohort is None or quotas.leaves(cohort, demand, holder, holder.first.demand)
