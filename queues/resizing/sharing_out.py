"""The loop that shares out room: one step after the other to the job that is least fulfilled, until nothing fits.

One rule: the result is the same as that of the plain loop. Steps that are computed together only save time.

The algorithm is the loop of Paddle's EDL, with places of room instead of nodes. A job is fulfilled by
`(workers - least) / (most - least)`. Of equally fulfilled jobs, the job with the smaller workers grows first, then the
older job. With 5 GPUs:

    job   unit  workers  least  most   fulfilled, and what it gets
    x        1        2      2     6   0    1/4    2/4
    y        2        1      1     3   0           1/2
    z        1        3      1     4   2/3

    step   goes to   why                                              free
    1      x         x and y are at 0, and x has the smaller workers     4
    2      y         0                                                   2
    3      x         1/4                                                 1
    4      x         2/4; y is at 1/2, too, but does not fit             0

Two things save steps. A place that has enough for all jobs, or that limits a single job, needs no loop. And while all
jobs still fit, the loop raises all of them to one level of fulfilment, which is found by halving.
"""

import heapq
import math
from collections.abc import Collection, Sequence

from queues.resizing.free_room import Place
from queues.resizing.values import ElasticJob

Limits = Sequence[tuple[Place, int, int]]
"""What a step takes of each place, and what is free there for the job."""
_HALVINGS = 20
_FEW = 4
"""So many steps per job are taken one by one."""


class Grower:
    """A job that grows, and how far."""

    __slots__ = ("_range", "_start", "_step", "job", "limits", "most", "steps")

    def __init__(self, job: ElasticJob, limits: Limits) -> None:
        self.job = job
        self.limits = limits
        self.steps = 0
        self.most = (job.most - job.workers) // job.step
        """The most steps."""
        self._start, self._step, self._range = job.workers - job.least, job.step, max(1, job.most - job.least)

    @property
    def workers(self) -> int:
        """The number of workers after the growth."""
        return self.job.workers + self.steps * self.job.step

    def fulfilment(self, steps: int) -> float:
        """Return how fulfilled the job is after a number of steps."""
        return (self._start + steps * self._step) / self._range

    def steps_below(self, level: float) -> int:
        """Return how many steps begin below a level."""
        steps = math.ceil((level * self._range - self._start) / self._step)
        steps = min(max(steps, self.steps), self.most)
        while steps > self.steps and self.fulfilment(steps - 1) >= level:
            steps -= 1
        return steps


def share_out(growers: Sequence[Grower]) -> None:
    """Let the growers take all steps that fit. Equally fulfilled jobs grow in the order in which they are given."""
    alike: dict[int, list[Grower]] = {}
    for grower in growers:
        alike.setdefault(id(grower.limits), []).append(grower)
    contended = _contended(alike.values())
    for group in alike.values():
        limits = tuple(limit for limit in group[0].limits if limit[0] in contended)
        for grower in group:
            grower.limits = limits
            grower.steps = 0 if limits else grower.most
    rest = [grower for grower in growers if grower.limits and grower.most]
    taken = dict.fromkeys(contended, 0)
    if sum(grower.most for grower in rest) > _FEW * len(rest):
        _raise_all(rest, taken)
    _take_one_by_one(rest, taken)


def _contended(alike: Collection[Sequence[Grower]]) -> set[Place]:
    """Lower the most steps of each job to the room that its places have for this job alone. Return the places that have
    less than all their jobs can take. Jobs with the same limits are together.
    """
    wanted: dict[Place, int] = {}
    least: dict[Place, int] = {}
    for group in alike:
        limits = group[0].limits
        most = min((free // amount for _, amount, free in limits), default=math.inf)
        for grower in group:
            grower.most = int(min(grower.most, most))
        steps = sum(grower.most for grower in group)
        for place, amount, free in limits:
            wanted[place] = wanted.get(place, 0) + amount * steps
            least[place] = min(free, least.get(place, free))
    return {place for place, amount in wanted.items() if amount > least[place]}


def _raise_all(growers: Sequence[Grower], taken: dict[Place, int]) -> None:
    """Raise all jobs to the highest level at which they still fit."""
    low, high = min((grower.fulfilment(0) for grower in growers), default=0.0), 1.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        if _fit(growers, middle):
            low = middle
        else:
            high = middle
    for grower in growers:
        grower.steps = grower.steps_below(low)
        for place, amount, _ in grower.limits:
            taken[place] += amount * grower.steps


def _fit(growers: Sequence[Grower], level: float) -> bool:
    taken: dict[Place, int] = {}
    for grower in growers:
        steps = grower.steps_below(level)
        if steps:
            for place, amount, free in grower.limits:
                taken[place] = total = taken.get(place, 0) + amount * steps
                if total > free:
                    return False
    return True


def _take_one_by_one(growers: Sequence[Grower], taken: dict[Place, int]) -> None:
    turns = [(grower.fulfilment(grower.steps), rank, grower) for rank, grower in enumerate(growers)]
    heapq.heapify(turns)
    while turns:
        _, rank, grower = turns[0]
        if grower.steps == grower.most or [1 for place, amount, free in grower.limits if taken[place] + amount > free]:
            heapq.heappop(turns)
            continue
        for place, amount, _ in grower.limits:
            taken[place] += amount
        grower.steps += 1
        heapq.heapreplace(turns, (grower.fulfilment(grower.steps), rank, grower))
