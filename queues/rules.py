"""How picks are made: what a pick costs, who is asked first, and how long a job is passed by.

One rule: values only; the settings become rules in one place.
"""

from dataclasses import dataclass
from typing import Literal

from crds import amounts
from queues.values import Overtaken

Picker = Literal["swrr", "wf2q"]


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
    picker: Picker = "swrr"
    """Smooth weighted round robin (`queues.credits`) or WF2Q+ (`queues.virtual_time`)."""
    patience: Patience = PATIENCE
    """Of a job that finds no room in the pool."""
    queue_bypasses: int = 32
    """How many jobs of a BestEffortFIFO queue pass its first one before it is waited for."""


def from_settings(
    cost: str, picker: Literal["auto", "swrr", "wf2q"], queue_bypasses: int, patience: Patience = PATIENCE
) -> Rules:
    """The rules that settings of these names mean.

    `auto` is smooth weighted round robin whatever the cost. With mixed GPU jobs (bench `fairness`, five seeds) it was
    closer to the weights than WF2Q+ where queues always have jobs (5.7 to 6.5 GPUs against 6.3 to 6.9, largest job 8)
    and let nobody wait longer; where queues come and go neither was closer on all seeds (9 to 12 against 8 to 14), and
    WF2Q+ gave a queue that returned fewer picks in a row (1 against 3).
    """
    chosen: Picker = "swrr" if picker == "auto" else picker
    return Rules(cost=cost, picker=chosen, patience=patience, queue_bypasses=queue_bypasses)
