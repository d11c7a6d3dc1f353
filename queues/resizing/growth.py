"""Growth into idle room: one step after the other to the job that is least fulfilled, until nothing fits.

One rule: idle growth takes only room that no waiting job could use now: free of every claim, of the pool's reservation,
and of what is given back.

This is the loop of Paddle's EDL, with room in place of nodes. A job is fulfilled by
`(workers - least) / (most - least)`. Of equally fulfilled jobs, the one with the smaller workers grows first, then the
older one. With 5 GPUs that have been free for long enough:

    job   unit  workers  least  most   fulfilled, and what it gets
    x        1        2      2     6   0    1/4    2/4
    y        2        1      1     3   0           1/2
    z        1        3      1     4   2/3

    step   goes to   why                                              free
    1      x         x and y are at 0, and x has the smaller workers     4
    2      y         0                                                   2
    3      x         1/4                                                 1
    4      x         2/4; y is at 1/2, too, but does not fit             0

The room must have been free for the job's `idle_seconds`, and a job that was resized of late rests. Both keep jobs from
a restart for room that is soon needed. A job that has fewer workers than its owner wants gets further ones by its
queue's order.
"""

import heapq
from collections.abc import Collection, Iterable, Sequence

from crds.keys import JobKey
from queues.resizing import givers, idle_room
from queues.resizing.free_room import FreeRoom, Need, Place
from queues.resizing.shares import Shares
from queues.resizing.values import ElasticJob, IdleRoom, KeptCode, Resize, Since


class _Grower:
    """A job that may grow now."""

    __slots__ = ("job", "limits", "needs", "workers")

    def __init__(self, job: ElasticJob, needs: Sequence[Need]) -> None:
        self.job = job
        self.needs = needs
        self.workers = job.workers
        self.limits: list[tuple[Place, int, int]] = []
        """What a step takes of each place, and what has been free there for long enough."""

    @property
    def fulfilment(self) -> float:
        return givers.fulfilment(self.job, self.workers)


class Growth:
    """The growth of one plan."""

    def __init__(self, free: FreeRoom, shares: Shares, now: float, before: IdleRoom) -> None:
        """`before` is what the plan before knew of idle room."""
        self._free = free
        self._shares = shares
        self._now = now
        self._before = before
        self.idle_since: dict[Place, tuple[Since, ...]] = {}
        self._taken: dict[Place, int] = {}
        """What the jobs of this plan take."""
        self.kept: dict[JobKey, KeptCode] = {}
        """Why jobs do not grow."""

    def grow(self, jobs: Iterable[ElasticJob], closed: Collection[str]) -> tuple[Resize, ...]:
        """Return the growth of these jobs. Jobs of a queue in `closed` do not grow."""
        able = [(job, needs) for job in jobs if (needs := self._needs(job, closed)) is not None]
        if able and self._free.any_waiting_job_fits():
            self.kept.update((job.key, "JobsFit") for job, _ in able)
            able = []
        self._observe()
        rested = [_Grower(job, needs) for job, needs in able if self._rests(job)]
        rested.sort(key=lambda grower: givers.rank(grower.job, self._shares))
        self._share_out(rested)
        return tuple(_resize(grower.job, grower.workers) for grower in rested if grower.workers > grower.job.workers)

    def _needs(self, job: ElasticJob, closed: Collection[str]) -> list[Need] | None:
        """Return what a step of a job takes; None if the job cannot grow whatever it waits for."""
        code = _obstacle(job)
        needs = None if code or job.queue in closed else self._free.needs(job)
        if needs is None:
            self.kept[job.key] = code or ("QueueHeld" if job.queue in closed else "NoRoom")
        return needs

    def _rests(self, job: ElasticJob) -> bool:
        """Return whether a job may grow by now."""
        if job.busy or job.resting_until > self._now:
            self.kept[job.key] = job.busy or "Resting"
            return False
        return True

    def _observe(self) -> None:
        before = self._before
        self.idle_since = {
            place: idle_room.observe(before.get(place, ()), free, self._now) for place, free in self._free.found.items()
        }

    def _share_out(self, growers: Sequence[_Grower]) -> None:
        """Run the loop. Equally fulfilled jobs grow in the order in which they are given."""
        for grower in growers:
            grower.limits = [(place, amount, self._idle(place, grower.job)) for place, amount in grower.needs]
        turns = [(grower.fulfilment, rank, grower) for rank, grower in enumerate(growers)]
        heapq.heapify(turns)
        while turns:
            _, rank, grower = turns[0]
            if not self._take(grower):
                heapq.heappop(turns)
                if grower.workers == grower.job.workers:
                    self.kept[grower.job.key] = "NotIdleYet"
            elif grower.workers + grower.job.step > grower.job.most:
                heapq.heappop(turns)
            else:
                heapq.heapreplace(turns, (grower.fulfilment, rank, grower))

    def _take(self, grower: _Grower) -> bool:
        """Take a step, and return whether there was room for it."""
        taken = self._taken
        for place, amount, idle in grower.limits:
            if taken.get(place, 0) + amount > idle:
                return False
        for place, amount, _ in grower.limits:
            taken[place] = taken.get(place, 0) + amount
        grower.workers += grower.job.step
        return True

    def _idle(self, place: Place, job: ElasticJob) -> int:
        return idle_room.free_for(self.idle_since[place], job.idle_seconds, self._now)


def _obstacle(job: ElasticJob) -> KeptCode:
    """Return why a job does not grow whatever room there is; empty: it may."""
    if not job.autoscale:
        return "Off"
    if job.leaving:
        return "Leaving"
    if job.workers < job.wanted:
        return "BelowWish"
    return "AtMost" if job.workers + job.step > job.most else ""


def _resize(job: ElasticJob, workers: int) -> Resize:
    return Resize(job.key, workers, "Idle", message=f"grows by {workers - job.workers} workers into idle room")
