"""The counts of a task's pods: whether enough of them run for the job to count as running.

One rule: pure, over counts. Higher layers decide what a pod is and when it runs.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskMembers:
    """The counts of one task of a gang."""

    wanted: int
    """The number of pods of the task when all of it runs."""
    minimum: int
    """The number of pods that the user needs (minMembers); more than `wanted` means all."""
    running: int
    """The number of pods that run now."""
    succeeded: int

    @property
    def enough(self) -> bool:
        """Whether min(minimum, wanted) pods run or have succeeded."""
        return self.running + self.succeeded >= min(self.minimum, self.wanted)

    @property
    def done(self) -> bool:
        """Whether every pod has succeeded."""
        return self.succeeded >= self.wanted
