"""The rules of picks: what a pick costs, and how long other jobs may go before one that lacks room.

One rule: values only. The settings become rules in one place.
"""

from dataclasses import dataclass

from crds.resources import amounts
from queues.values import OvertakenJob


@dataclass(frozen=True, slots=True)
class Patience:
    """How long other jobs may overtake a job that finds no room in the pool."""

    times: int = 2
    """The most picks that may overtake the job. Times their cost, it is how far the shares may drift meanwhile."""
    seconds: float = 30.0
    """The longest time in which picks may overtake the job, from the first of them on."""

    def ends(self, overtaken: OvertakenJob, now: float) -> bool:
        """Return whether other jobs may no longer overtake the job."""
        is_late = overtaken.times > 0 and now - overtaken.since >= self.seconds
        return overtaken.times >= self.times or is_late


PATIENCE = Patience()


@dataclass(frozen=True, slots=True, kw_only=True)
class PickRules:
    """Everything that an admin can set about picks."""

    cost: str = amounts.JOBS
    """What a pick costs its queue: "jobs" (1 for each), or the canonical name of the resource that weights divide."""
    patience: Patience = PATIENCE
    """The patience of a job that finds no room in the pool."""
    queue_bypasses: int = 32
    """The most jobs of a BestEffortFIFO queue that may pass its first one; after them the queue waits for it."""


def from_settings(cost: str, queue_bypasses: int, patience: Patience = PATIENCE) -> PickRules:
    """Return the rules for the settings of these names."""
    return PickRules(cost=cost, patience=patience, queue_bypasses=queue_bypasses)
