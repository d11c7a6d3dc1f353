"""When a job that merely waits is written to as Queued.

One rule: such jobs take turns, so many a second. What they cost the workers then never stands before what admitted
jobs need, however many jobs come at once; a job that is picked meanwhile is looked at at once and never written to as
Queued.
"""

from collections.abc import Callable
from dataclasses import replace

from cluster.limiter import Limiter
from crds.keys import JobKey
from queues.values import Offer

PER_SECOND = 20.0
AT_ONCE = 100
"""So many jobs that come together need not take turns."""
FEW = 1024
"""Below this many there is no need to look for turns that have passed."""


class Turns:
    """The turns given, each job's once: to offer a job again does not cost a second turn."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._now = clock()
        self._begin()

    def place(self, offer: Offer) -> Offer:
        """The offer as it should be made now: at once if it is not for a waiting job, else when its turn comes."""
        if not offer.delay:
            return offer
        now = self._clock()
        if now < self._now:  # somebody has set the clock back
            self._begin()
        self._now = now
        due = self._due.get(offer.key, now)
        if due <= now:
            due = self._due[offer.key] = now + offer.delay + self._limiter.reserve()
            self._forget_passed(now)
        return replace(offer, delay=due - now)

    def __len__(self) -> int:
        """Everything that is remembered."""
        return len(self._due)

    def _begin(self) -> None:
        self._limiter = Limiter(PER_SECOND, AT_ONCE, self._clock)
        self._due: dict[JobKey, float] = {}
        self._many = FEW

    def _forget_passed(self, now: float) -> None:
        if len(self._due) > self._many:
            self._due = {key: due for key, due in self._due.items() if due > now}
            self._many = max(FEW, 2 * len(self._due))
