"""When a worker looks at a job that holds nothing, only to write in its status that it waits, is suspended or invalid.

One rule: such jobs take turns, so many a second, and tenants take turns at that. What they cost the workers then never
stands before what admitted jobs need, however many jobs come at once, and no tenant's jobs stand before another's. A
job that is picked meanwhile is looked at at once; it is never written to as Queued and takes no turn.
"""

from collections.abc import Callable
from dataclasses import replace
from itertools import count, takewhile

from coordinator.leader.round_robin import RoundRobin
from crds.keys import JobKey
from queues.values import Offer

PER_SECOND = 20.0
AT_ONCE = 100
"""So many jobs that come together need not take turns."""


class Turns:
    """The jobs that have yet to be looked at. Each waits for its offer's delay, if it has one, then for its turn."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._now = clock()
        self._offers: dict[JobKey, Offer] = {}
        self._delayed: dict[JobKey, float] = {}
        """When each job's delay is over; the earliest first, since all delays are equally long."""
        self._ready = RoundRobin()
        self._numbers = count()
        self._next = 0.0
        """When the next offer would be made if all of them were evenly spaced."""

    def __len__(self) -> int:
        """Everything that is remembered."""
        return len(self._offers) + len(self._delayed) + len(self._ready)

    def place(self, offer: Offer) -> None:
        """Let the offer wait for its turn; the job keeps the place it had if it had one."""
        key, known = offer.key, offer.key in self._offers
        self._offers[key] = offer
        if not offer.delay:
            self._delayed.pop(key, None)
            self._ready.add(offer.tenant, next(self._numbers), key)
        elif not known:
            self._delayed[key] = self._time() + offer.delay

    def forget(self, key: JobKey) -> None:
        """The job needs no turn any more: it was picked, its status was written, or it is gone."""
        if self._offers.pop(key, None) is not None and self._delayed.pop(key, None) is None:
            self._ready.discard(key)

    def due(self) -> list[Offer]:
        """The offers whose turn has come, to be made at once; forgotten here."""
        now = self._time()
        self._wake(now)
        offers: list[Offer] = []
        self._next = max(self._next, now - (AT_ONCE - 1) / PER_SECOND)
        while self._next <= now and (key := self._ready.pop()) is not None:
            offers.append(replace(self._offers.pop(key), delay=0.0))
            self._next += 1 / PER_SECOND
        return offers

    def _wake(self, now: float) -> None:
        """The jobs whose delay is over wait for their turn from now on."""
        for key in [key for key, _ in takewhile(lambda each: each[1] <= now, self._delayed.items())]:
            del self._delayed[key]
            self._ready.add(self._offers[key].tenant, next(self._numbers), key)

    def _time(self) -> float:
        """The time now. After the clock was set back every moment that is remembered is moved by as much."""
        now, before = self._clock(), self._now
        if now < before:
            self._delayed = {key: at + now - before for key, at in self._delayed.items()}
            self._next += now - before
        self._now = now
        return now
