"""How picks are made: what a pick costs, who is asked first, and how long a job is passed by.

One rule: values only; the settings become rules in one place.
"""

from dataclasses import dataclass

from crds.resources import amounts
from queues.values import Overtaken


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a job lets others overtake it for want of room in the pool."""

    times: int = 2
    """How many picks may overtake it; times their cost, it is how far the shares may drift meanwhile."""
    seconds: float = 30.0
    """How long after the first of them, at most."""

    def ends(self, overtaken: Overtaken, now: float) -> bool:
        """Whether the job has let enough others go first."""
        return overtaken.times >= self.times or now - overtaken.since >= self.seconds


PATIENCE = Patience()


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """Everything an admin may say about picks."""

    cost: str = amounts.JOBS
    """What a pick costs its queue: "jobs" (every job 1), or the canonical name of the resource the weights divide."""
    patience: Patience = PATIENCE
    """Of a job that finds no room in the pool."""
    queue_bypasses: int = 32
    """How many jobs of a BestEffortFIFO queue pass its first one before it is waited for."""


def from_settings(cost: str, queue_bypasses: int, patience: Patience = PATIENCE) -> Rules:
    """The rules that settings of these names mean."""
    return Rules(cost=cost, patience=patience, queue_bypasses=queue_bypasses)
