"""When enough of a task's pods run together for the job to count as running.

One rule: pure, over counts. What a pod is and when it runs is judged above.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Members:
    """One task of a gang, counted."""

    wanted: int
    """How many pods the task has when all of it runs."""
    minimum: int
    """How many of them the user needs (minMembers); more than `wanted` means all."""
    running: int
    """Pods that really run now."""
    succeeded: int

    @property
    def enough(self) -> bool:
        """Whether min(minimum, wanted) pods run or have succeeded."""
        return self.running + self.succeeded >= min(self.minimum, self.wanted)

    @property
    def done(self) -> bool:
        """Whether every pod has succeeded."""
        return self.succeeded >= self.wanted
