"""Which keys to look at, each once however often it was marked.

One rule: a change of a job is looked at at once; changes of its pods at most every PODS_SECONDS, the first of them at
once. A job of a thousand pods changes a thousand times in a second, and costs a few looks. Keys that are looked at
again without news do not stand before those that have changed.
"""

import threading
from collections.abc import Callable, Iterable
from itertools import islice

from crds.keys import JobKey

PODS_SECONDS = 0.2
SHARE = 4
"""The part of a look that keys without news may take: one in so many."""


class Marks:
    """The keys, and for those of which pods have changed just now, when they may be looked at again."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._due: dict[JobKey, int] = {}
        self._again: dict[JobKey, None] = {}
        """Keys without news."""
        self._later: dict[JobKey, int] = {}
        self._resting: dict[JobKey, float] = {}
        """Until when; the earliest first, since all rest equally long."""

    def add(self, keys: Iterable[JobKey], seen: int) -> None:
        """To be looked at at once. `seen` is the newest resourceVersion known of the pods; the largest one is kept."""
        with self._lock:
            for key in keys:
                self._add(key, max(seen, self._later.pop(key, 0)))

    def add_again(self, keys: Iterable[JobKey]) -> None:
        """To be looked at again though nothing is known to have changed, a part of them with each look."""
        with self._lock:
            self._again.update((key, None) for key in keys if key not in self._due)

    def add_for_pods(self, key: JobKey, seen: int) -> bool:
        """To be looked at as soon as its rest is over; whether that is now."""
        with self._lock:
            now = self._clock()
            if key not in self._due and self._resting.get(key, now) > now:
                self._later[key] = max(seen, self._later.get(key, 0))
                return False
            self._rest(key, now)
            self._add(key, seen)
            return True

    def add_soon(self, key: JobKey) -> None:
        """To be looked at after a rest: what somebody else's cache has to have seen, too."""
        with self._lock:
            if key not in self._due:
                self._later.setdefault(key, 0)
                if key not in self._resting:
                    self._rest(key, self._clock())

    def take(self, limit: int) -> list[tuple[JobKey, int]]:
        """Up to `limit` keys whose time has come, oldest first, each with the largest `seen`; forgotten here. A part of
        them at most are keys without news, and as many go if there are."""
        with self._lock:
            self._wake(self._clock())
            keys = list(islice(self._due, limit - min(len(self._again), limit // SHARE)))
            again = list(islice(self._again, min(limit - len(keys), max(1, limit // SHARE))))
            for key in again:
                del self._again[key]
            return [(key, self._due.pop(key)) for key in keys] + [(key, 0) for key in again]

    def __len__(self) -> int:
        """Everything that is remembered."""
        with self._lock:
            self._wake(self._clock())
            return len(self._due) + len(self._again) + len(self._later) + len(self._resting)

    def _add(self, key: JobKey, seen: int) -> None:
        self._again.pop(key, None)
        self._due[key] = max(seen, self._due.get(key, 0))

    def _rest(self, key: JobKey, now: float) -> None:
        self._resting.pop(key, None)
        self._resting[key] = now + PODS_SECONDS

    def _wake(self, now: float) -> None:
        """Those whose rest is over are due if they were marked meanwhile, and rest again."""
        rested = []
        for key, until in self._resting.items():
            if until > now:
                break
            rested.append(key)
        for key in rested:
            del self._resting[key]
            if key in self._later:
                self._add(key, self._later.pop(key))
                self._rest(key, now)
