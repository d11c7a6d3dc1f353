"""The numbers of workers with which a job can be admitted.

One rule: pure, over numbers. Every range contains the requested number of workers, also for objects that were stored
before an API server checked the bounds.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class WorkerRange:
    """The numbers from `least` to `wanted`, in steps."""

    least: int
    wanted: int
    """The number of workers that the job requests."""
    step: int = 1

    def __contains__(self, workers: int) -> bool:
        """Return whether the job can be admitted with a number of workers."""
        return self.least <= workers <= self.wanted and (workers - self.least) % self.step == 0


def of_policy(wanted: int, least: int | None, step: int) -> WorkerRange | None:
    """Return the range of an elastic job; None without a least number, or without workers."""
    if least is None or not wanted:
        return None
    least = min(least, wanted)
    return WorkerRange(least, wanted, 1 if (wanted - least) % step else step)


def of_members(wanted: int, members: int | None) -> WorkerRange | None:
    """Return the range of a job that is not elastic; None if it does not say that fewer workers are enough."""
    return WorkerRange(members, wanted) if members is not None and members < wanted else None
