"""The keys of the jobs to route, each once however often it was marked.

One rule: a job that changed is routed at once; for changes of its pods, at most once in PODS_SECONDS, the first at
once. A job of a thousand pods may change a thousand times in a second, and is routed a few times. Keys that are routed
again without news do not delay those that have changed.
"""

import threading
from collections.abc import Callable, Iterable
from itertools import islice

from crds.keys import JobKey

PODS_SECONDS = 0.2
"""How long a key rests after changed pods made it due: further changes of its pods wait until then."""
SHARE = 4
"""One in this many keys of a step may be a key that is routed again without news."""


class DirtyKeys:
    """The dirty keys, and when keys with changed pods may be routed again; safe to share between threads."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._due: dict[JobKey, int] = {}
        self._again: dict[JobKey, None] = {}
        """Keys that are routed again without news."""
        self._later: dict[JobKey, int] = {}
        self._resting: dict[JobKey, float] = {}
        """When the rest of each key ends; the earliest first, since all rest equally long."""

    def add(self, keys: Iterable[JobKey], version: int) -> None:
        """Mark keys to be routed at once.

        `version` is the newest resourceVersion known of their pods; the largest of several is returned by `take`.
        """
        with self._lock:
            for key in keys:
                self._add(key, max(version, self._later.pop(key, 0)))

    def add_again(self, keys: Iterable[JobKey]) -> None:
        """Mark keys to be routed again although nothing is known to have changed, a part of them in each step."""
        with self._lock:
            self._again.update((key, None) for key in keys if key not in self._due)

    def add_for_pods(self, key: JobKey, version: int) -> bool:
        """Mark a key to be routed as soon as its rest is over; return whether that is now."""
        with self._lock:
            now = self._clock()
            if key not in self._due and self._resting.get(key, now) > now:
                self._later[key] = max(version, self._later.get(key, 0))
                return False
            self._rest(key, now)
            self._add(key, version)
            return True

    def add_soon(self, key: JobKey) -> None:
        """Mark a key to be routed after a rest, because the cache of a worker has to see the change first."""
        with self._lock:
            if key not in self._due:
                self._later.setdefault(key, 0)
                if key not in self._resting:
                    self._rest(key, self._clock())

    def take(self, limit: int) -> list[tuple[JobKey, int]]:
        """Remove and return up to `limit` keys that are due, oldest first, each with its newest version of pods.

        Keys without news are a fixed part of them, or fewer if there are fewer.
        """
        with self._lock:
            self._wake(self._clock())
            keys = list(islice(self._due, limit - min(len(self._again), limit // SHARE)))
            without_news = list(islice(self._again, min(limit - len(keys), max(1, limit // SHARE))))
            for key in without_news:
                del self._again[key]
            return [(key, self._due.pop(key)) for key in keys] + [(key, 0) for key in without_news]

    def __len__(self) -> int:
        """Return the number of all entries that are kept."""
        with self._lock:
            self._wake(self._clock())
            return len(self._due) + len(self._again) + len(self._later) + len(self._resting)

    def _add(self, key: JobKey, version: int) -> None:
        self._again.pop(key, None)
        self._due[key] = max(version, self._due.get(key, 0))

    def _rest(self, key: JobKey, now: float) -> None:
        self._resting.pop(key, None)
        self._resting[key] = now + PODS_SECONDS

    def _wake(self, now: float) -> None:
        """Make the keys due whose rest is over, if they were marked meanwhile; those rest again."""
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
