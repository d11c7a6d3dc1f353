"""The rules of picks: the price of a pick, and for how long other jobs may be admitted before a job that lacks room.

One rule: values only. The settings become rules in one place.

A job that finds no room in the pool has to wait until running jobs free the room, and the room that is kept for it
is idle in the meantime. How long that takes is seldom known. But of jobs that have run for a time, half run for as long
again or longer, roughly, whatever their lengths. So the job's patience is the median age of what runs, 30 seconds at
least:

    what runs                                      patience   room is kept for about
    jobs of about a minute                         30 s       a minute
    jobs of a day, and hundreds of a few minutes   hours      a day

Inside a queue the same holds for a first job that its quota or its cohort refuses, with the ages of what its queue runs
and no least: then jobs pass it only if they leave what it needs.

Where jobs end soon, a large job soon begins. Where jobs run for days, the patience does not keep the pool idle for days
while small jobs that end in minutes could run.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

LEAST_PATIENCE = 30.0
"""The patience of a job where jobs run for less than this, in seconds."""
LEAST_HOLD = 1.0
"""The seconds for which kept room costs at least as much as if jobs used it, where jobs end sooner."""
LONGEST_PATIENCE = 604_800.0
"""The most seconds for which jobs are passed by default, however long others run: a week."""
DOMINANT = "dominant"
"""The cost of a pick by which weights divide the dominant resource of each job (`queues.picking.prices`)."""


@dataclass(frozen=True, slots=True)
class Patience:
    """The number of seconds for which other jobs may pass a job. A reader of the store does not know the leader's
    patience: with a patience without end, the reader keeps room only for the jobs for which the leader keeps room.
    """

    pool: float = math.inf
    """Of a job that finds no room in the pool."""
    queues: Mapping[str, float] | None = None
    """Of a first job that its quota or its cohort refuses, towards other jobs of its queue; None: not known."""
    hold: float = math.inf
    """For how long jobs hold their room on average by cost, at least a second: by this, kept room is paid."""

    def within(self, queue: str) -> float:
        """Return for how long jobs of a queue may pass its first job, whatever room they take."""
        return math.inf if self.queues is None else self.queues.get(queue, 0.0)

    def among(self, queues: Iterable[str]) -> float:
        """Return for how long these queues may borrow before a job that has to borrow: the median of their
        patiences."""
        return math.inf if self.queues is None else _median([self.within(queue) for queue in queues])


@dataclass(frozen=True, slots=True, kw_only=True)
class PickRules:
    """Everything that an admin can set about picks."""

    cost: str = DOMINANT
    """What a pick costs its queue: the job's dominant share, "jobs" (1 for each), or the canonical name of the resource
    that weights divide."""
    longest_patience: float = LONGEST_PATIENCE
    """The most seconds for which other jobs may pass one that finds no room."""

    @property
    def least_patience(self) -> float:
        """The seconds for which other jobs may overtake a job that finds no room in the pool, whatever jobs run."""
        return min(LEAST_PATIENCE, self.longest_patience)

    def patience(self, ages: Mapping[str, Sequence[float]], holds: Sequence[tuple[float, int]] = ()) -> Patience:
        """Return how long jobs may be passed. `ages` are those of the running jobs of each queue, in seconds and in any
        order; `holds` the seconds for which the jobs that ended last held their room, each with the job's cost.

        Each counts by its cost: else many jobs that cost next to nothing could make the room dear or cheap.
        """
        every = [*chain.from_iterable(ages.values())]
        pool = min(max(_median(every), LEAST_PATIENCE), self.longest_patience)
        within = {queue: min(_median(found), self.longest_patience) for queue, found in ages.items()}
        known = holds or [(age, 1) for age in every]
        total = sum(cost for _, cost in known)
        mean = sum(seconds * cost for seconds, cost in known) / total if total else 0.0
        return Patience(pool, within, max(LEAST_HOLD, mean))


def _median(ages: Sequence[float]) -> float:
    return sorted(ages)[len(ages) // 2] if ages else 0.0


def counted(cost: str) -> frozenset[str]:
    """Return the resource whose usage must be counted because prices depend on it, even if nothing limits the
    resource."""
    return frozenset() if cost == DOMINANT else frozenset((cost,))
