"""The limit for reconciles that only write a status: that a job without room is queued, suspended or invalid.

One rule: the number of these reconciles per second is limited, and so is the number under way; tenants take turns. So
the reconciles never delay the work for admitted jobs, however many jobs are submitted at once, and no tenant delays
another. Where workers or the API server are busy, only a few statuses a second are written: a job that goes soon needs
none. A job that is picked in the meantime is reconciled at once; its status never says Queued, and it takes no turn.
"""

from collections.abc import Callable
from dataclasses import replace
from itertools import count, takewhile

from coordinator.leader.round_robin import RoundRobin
from crds.keys import JobKey
from queues.tasks import Offer

PER_SECOND = 20.0
AT_ONCE = 100
"""Jobs that may be offered in a row before the limit applies."""
MOST_UNDER_WAY = 4
"""The most offers whose writes nobody has seen yet. Where they are seen within 0.2 s, this is no limit."""
UNDER_WAY_SECONDS = 1.0
"""After this time an offer no longer counts as under way: so a few offers a second are made at least."""
UNANSWERED_SECONDS = 20.0
"""How long a worker may still write after an offer: then it has lost the key."""


class QueuedLimiter:
    """The waiting offers. An offer waits for its own delay, if it has one, and then for its tenant's turn."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """`clock` returns the seconds of a clock that is never set."""
        self._clock = clock
        self._offers: dict[JobKey, Offer] = {}
        self._delayed: dict[JobKey, float] = {}
        """The time at which the delay of each job ends, earliest first, since all delays are equally long."""
        self._ready: RoundRobin[JobKey] = RoundRobin()
        self._numbers = count()
        self._unanswered: dict[JobKey, float] = {}
        """When each offer was made whose job still needs the write, as far as is known, earliest first."""
        self._next = 0.0
        """The time at which the next offer would be due if all offers were evenly spaced."""

    def __len__(self) -> int:
        """Return the number of all entries that are kept."""
        return len(self._offers) + len(self._delayed) + len(self._ready) + len(self._unanswered)

    def add(self, offer: Offer) -> None:
        """Let an offer wait for its turn; a job that already waits keeps its place."""
        key, is_waiting = offer.key, offer.key in self._offers
        self._offers[key] = offer
        if not offer.delay:
            self._delayed.pop(key, None)
            self._ready.add(offer.tenant, next(self._numbers), key)
        elif not is_waiting:
            self._delayed[key] = self._clock() + offer.delay

    def discard(self, key: JobKey) -> None:
        """Remove a job that needs no turn any more: it was picked, its status was written, or it was deleted."""
        self.note_written(key)
        if self._offers.pop(key, None) is not None and self._delayed.pop(key, None) is None:
            self._ready.discard(key)

    def note_written(self, key: JobKey) -> None:
        """Note that the status of a job needs no write now, so that nobody is expected to write it."""
        self._unanswered.pop(key, None)

    def take_due(self) -> list[Offer]:
        """Remove and return the offers whose turn has come. The caller makes them at once."""
        now = self._clock()
        for rested in list(takewhile(lambda key: self._delayed[key] <= now, self._delayed)):
            del self._delayed[rested]
            self._ready.add(self._offers[rested].tenant, next(self._numbers), rested)
        offers: list[Offer] = []
        self._next = max(self._next, now - (AT_ONCE - 1) / PER_SECOND)
        under_way = self._under_way(now)
        while self._next <= now and under_way < MOST_UNDER_WAY and (key := self._ready.pop()) is not None:
            offers.append(replace(self._offers.pop(key), delay=0.0))
            self._unanswered.pop(key, None)
            self._unanswered[key], under_way = now, under_way + 1
            self._next += 1 / PER_SECOND
        return offers

    def is_unanswered(self, key: JobKey) -> bool:
        """Return whether a worker may be writing the status of a job: no change of the job has answered its offer."""
        return key in self._unanswered

    def _under_way(self, now: float) -> int:
        """Return how many offers are under way. Forget the offers that nobody answers any more."""
        for lost in list(takewhile(lambda key: now - self._unanswered[key] > UNANSWERED_SECONDS, self._unanswered)):
            del self._unanswered[lost]
        latest = reversed(self._unanswered.values())
        return sum(1 for _ in takewhile(lambda made: now - made < UNDER_WAY_SECONDS, latest))
