"""When the next plan of resizes is due.

One rule: a plan follows from what it is made of and from the time. If nothing of that can have changed, the plan would
be the last one again, and is not made.
"""

import math
from collections.abc import Hashable, Iterable
from dataclasses import dataclass

from queues.resizing.values import ElasticJob

INTERVAL_SECONDS = 1.0
"""The least number of seconds between two plans."""
LONGEST_SECONDS = 60.0
"""The most seconds between two plans, if nothing has changed that anybody knows."""


@dataclass(slots=True)
class PlanTimes:
    """The time of the last plan, and until when time alone may change it. Times are seconds since 1970."""

    _planned_at: float = -math.inf
    _state: Hashable = None
    _open_until: float = math.inf

    def is_early(self, now: float) -> bool:
        """Return whether the last plan is too recent for another one. The clock may have been set back."""
        return abs(now - self._planned_at) < INTERVAL_SECONDS

    def is_due(self, state: Hashable, now: float) -> bool:
        """Return whether a plan is due. `state` changes with all that a plan is made of, but for the time."""
        return state != self._state or now <= self._open_until or abs(now - self._planned_at) >= LONGEST_SECONDS

    def wait(self, now: float) -> None:
        """Record that no plan could be made. The next one is due after the least time."""
        self._planned_at, self._state = now, None

    def note(
        self, state: Hashable, jobs: Iterable[ElasticJob], now: float, *, acts: bool, patient_until: float = -math.inf
    ) -> None:
        """Record a plan. If it changes nothing (`acts`), time alone may change it until room has been idle for long
        enough, jobs have rested for long enough, and waiting jobs have lost their patience (`patient_until`)."""
        self._planned_at = now
        if acts:
            self._state, self._open_until = state, math.inf
        elif state != self._state or self._open_until == math.inf:
            ends = [max(now + job.idle_seconds, job.resting_until) for job in jobs if job.resting_until < math.inf]
            self._state, self._open_until = state, max([*ends, patient_until, now]) + INTERVAL_SECONDS
