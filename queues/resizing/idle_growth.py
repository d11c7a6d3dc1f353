"""Growth into idle room.

One rule: idle growth takes only room that no waiting job could use now: free of every claim, of the pool's reservation,
and of room that is being given back.

The room must have been free for the job's `idle_seconds`, and a job that was resized of late rests. Both rules keep a
job from a restart for room that is needed again soon. A job that has fewer workers than its owner wants gets further
workers by its queue's order. How the room is shared out is in `queues.resizing.sharing_out`.
"""

from collections.abc import Collection, Iterable, Sequence

from crds.keys import JobKey
from queues.resizing import givers, sharing_out
from queues.resizing.free_room import FreeRoom, Need, Place
from queues.resizing.givers import Shares
from queues.resizing.sharing_out import Grower, Limits
from queues.resizing.values import ElasticJob, IdleRoom, KeptCode, Resize, Since

_MOST = 16
"""The most steps that are kept."""


class Growth:
    """The growth of one plan."""

    def __init__(self, free: FreeRoom, shares: Shares, now: float, before: IdleRoom) -> None:
        """`before` is the knowledge of the previous plan about idle room."""
        self._free = free
        self._shares = shares
        self._now = now
        self._before = before
        self.idle_since: dict[Place, tuple[Since, ...]] = {}
        self._found: dict[tuple[int, float], Limits] = {}
        self.kept: dict[JobKey, KeptCode] = {}
        """Why jobs with autoscale do not grow that have not all the workers that they may have."""

    def grow(self, jobs: Iterable[ElasticJob], closed: Collection[str]) -> tuple[Resize, ...]:
        """Return the growth of jobs that `may_grow`. Jobs of a queue in `closed` do not grow."""
        able = self._with_room(jobs, closed)
        if able and self._free.any_waiting_job_fits():
            self.kept.update((job.key, "JobsFit") for job, _ in able)
            able = []
        self._observe()
        growers = [Grower(job, self._limits(job, needs)) for job, needs in able if self._rests(job)]
        growers.sort(key=lambda grower: givers.rank(grower.job, self._shares))
        sharing_out.share_out(growers)
        self.kept.update((grower.job.key, "NotIdleYet") for grower in growers if not grower.steps)
        return tuple(_resize(grower.job, grower.workers) for grower in growers if grower.steps)

    def _with_room(
        self, jobs: Iterable[ElasticJob], closed: Collection[str]
    ) -> Sequence[tuple[ElasticJob, Sequence[Need]]]:
        """Return the jobs for which a step fits, whether they rest or not, and the amounts that the step takes."""
        exhausted, able = self._free.exhausted(), []
        for job in jobs:
            if job.queue in closed:
                self.kept[job.key] = "QueueHeld"
            elif any(job.unit.get(name, 0) > 0 for name in exhausted):
                self.kept[job.key] = "NoRoom"
            elif (needs := self._free.needs(job)) is None:
                self.kept[job.key] = "NoRoom" if self._free.has_nodes(job) else "NoNodes"
            else:
                able.append((job, needs))
        return able

    def _rests(self, job: ElasticJob) -> bool:
        """Return whether a job may grow by now."""
        if job.busy or job.resting_until > self._now:
            self.kept[job.key] = job.busy or "Resting"
            return False
        return True

    def _observe(self) -> None:
        before = self._before
        self.idle_since = {
            place: observe(before.get(place, ()), free, self._now) for place, free in self._free.found.items()
        }

    def _limits(self, job: ElasticJob, needs: Iterable[Need]) -> Limits:
        """Return the amounts that a step takes of each place, and the amounts that have been idle there for long
        enough.

        Jobs with the same needs and the same time have the same object.
        """
        kind = id(needs), job.idle_seconds
        if kind not in self._found:
            self._found[kind] = tuple((place, amount, self._idle(place, job)) for place, amount in needs)
        return self._found[kind]

    def _idle(self, place: Place, job: ElasticJob) -> int:
        return free_for(self.idle_since[place], job.idle_seconds, self._now)


def may_grow(job: ElasticJob) -> bool:
    """Return whether a job may grow one day, in its present state."""
    return job.autoscale and not job.leaving and job.wanted <= job.workers <= job.most - job.step


def _resize(job: ElasticJob, workers: int) -> Resize:
    return Resize(job.key, workers, "Idle", message=f"grows by {workers - job.workers} workers into idle room")


def observe(before: tuple[Since, ...], free: int, now: float) -> tuple[Since, ...]:
    """Return the knowledge about idle room after the given amounts were found free."""
    if before and before[-1].amount == free and before[-1].since <= now:
        return before
    if free <= 0:
        return ()
    lower = tuple(step for step in before if step.amount < free)
    since = before[len(lower)].since if len(lower) < len(before) else now
    steps = (*lower, Since(free, min(since, now)))
    return steps if len(steps) <= _MOST else _without_shortest(steps)


def free_for(steps: tuple[Since, ...], seconds: float, now: float) -> int:
    """Return the largest amount that has been free for so long."""
    if steps and now - steps[-1].since >= seconds:
        return steps[-1].amount
    return next((step.amount for step in reversed(steps) if now - step.since >= seconds), 0)


def _without_shortest(steps: tuple[Since, ...]) -> tuple[Since, ...]:
    """Return the steps without the step whose next step followed soonest."""
    index = min(range(len(steps) - 1), key=lambda each: steps[each + 1].since - steps[each].since)
    return steps[:index] + steps[index + 1 :]
