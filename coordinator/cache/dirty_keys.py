"""The keys of the jobs to route, and when changes of queues and nodes take effect. A key that was marked several times
is routed once. What an admin changes together takes effect together.

One rule: a job that changed is routed at once. Changes of its pods route it at most once in PODS_SECONDS, the first
change at once. A job of a thousand pods may change a thousand times in a second, and is routed a few times. What frees
room goes before what takes room, and both before what only tells; of each step, every kind gets a part. Keys that are
routed again although nothing changed do not delay keys that have changed.
"""

import threading
from collections.abc import Callable, Iterable
from itertools import islice, takewhile
from typing import NamedTuple

from crds.keys import JobKey
from queues.work_kinds import EIGHT, KINDS, TURNS, WorkKind, more_urgent

PODS_SECONDS = 0.2
"""How long a key rests after a change of its pods has made it due. Further changes of its pods wait until the rest is
over."""
REPEAT_SECONDS = 2.0
"""When a key is marked once more, because the cache of a worker may have been further behind than a rest."""
PATIENCE = 8
"""The longest wait of settings that keep changing, as a multiple of `settle_seconds`."""
SHARE = 4
"""One in this many keys of a step may be a key that is routed again although nothing changed."""


class _Mark(NamedTuple):
    """Why a key is routed."""

    version: int
    """The newest known resourceVersion of its pods."""
    kind: WorkKind

    def with_earlier(self, earlier: "_Mark | None") -> "_Mark":
        """Return this mark together with an earlier one."""
        if earlier is None:
            return self
        return _Mark(max(self.version, earlier.version), more_urgent(self.kind, earlier.kind))


class DirtyKeys:
    """The dirty keys, and when keys with changed pods may be routed again; safe to share between threads."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._due: dict[WorkKind, dict[JobKey, _Mark]] = {kind: {} for kind in KINDS}
        """By kind, the keys to route, oldest first."""
        self._again: dict[JobKey, None] = {}
        """Keys that are routed again although nothing changed."""
        self._later: dict[JobKey, _Mark] = {}
        self._resting: dict[JobKey, float] = {}
        """The time at which the rest of each key ends, earliest first, since all keys rest equally long."""
        self._repeats: dict[JobKey, float] = {}
        """The keys that are to be marked once more, and when; earliest first, since all wait equally long."""

    def add(self, keys: Iterable[JobKey], version: int, kind: WorkKind = "begins") -> None:
        """Mark keys to be routed at once.

        `version` is the newest known resourceVersion of their pods. `take` returns the largest version of each key.
        """
        with self._lock:
            for key in keys:
                self._add(key, _Mark(version, kind))

    def add_again(self, keys: Iterable[JobKey]) -> None:
        """Mark keys to be routed again although no change of them is known. Each step takes a part of them."""
        with self._lock:
            self._again.update((key, None) for key in keys if not self._is_due(key))

    def add_for_pods(self, key: JobKey, version: int, kind: WorkKind = "tells") -> bool:
        """Mark a key to be routed as soon as its rest is over; return whether that is now."""
        with self._lock:
            now, mark = self._clock(), _Mark(version, kind)
            if not self._is_due(key) and self._resting.get(key, now) > now:
                self._later[key] = mark.with_earlier(self._later.get(key))
                return False
            self._rest(key, now)
            self._add(key, mark)
            return True

    def add_soon(self, key: JobKey, *, repeat: bool = False) -> None:
        """Mark a key to be routed after a rest, because the cache of a worker has to see the change first. With
        `repeat`, `take_repeats` returns it later."""
        with self._lock:
            if repeat:
                self._repeats.pop(key, None)
                self._repeats[key] = self._clock() + REPEAT_SECONDS
            if not self._is_due(key):
                self._later[key] = _Mark(0, "begins").with_earlier(self._later.get(key))
                if key not in self._resting:
                    self._rest(key, self._clock())

    def take_repeats(self) -> list[JobKey]:
        """Remove and return the keys that are to be marked once more now."""
        with self._lock:
            now = self._clock()
            due = list(takewhile(lambda key: self._repeats[key] <= now, self._repeats))
            for key in due:
                del self._repeats[key]
            return due

    def take(self, limit: int) -> list[tuple[JobKey, int]]:
        """Remove and return up to `limit` keys that are due, the most urgent first and then the oldest, each with the
        newest known resourceVersion of its pods.

        A fixed part of the result is for keys of `add_again`. Of the rest, two eighths are for keys that begin and one
        for those that only tell. A part is smaller if fewer of these keys wait.
        """
        with self._lock:
            self._wake(self._clock())
            news = limit - min(len(self._again), limit // SHARE)
            kept = {kind: min(len(self._due[kind]), news * TURNS.count(kind) // EIGHT) for kind in KINDS}
            taken: list[tuple[JobKey, int]] = []
            for kind, due in self._due.items():
                kept[kind] = 0
                keys = list(islice(due, news - len(taken) - sum(kept.values())))
                taken += [(key, due.pop(key).version) for key in keys]
            without_news = list(islice(self._again, min(limit - len(taken), max(1, limit // SHARE))))
            for key in without_news:
                del self._again[key]
            return taken + [(key, 0) for key in without_news]

    def __len__(self) -> int:
        """Return the number of all entries that are kept."""
        with self._lock:
            self._wake(self._clock())
            due = sum(len(each) for each in self._due.values())
            return due + len(self._again) + len(self._later) + len(self._resting) + len(self._repeats)

    def _is_due(self, key: JobKey) -> bool:
        return any(due and key in due for due in self._due.values())

    def _add(self, key: JobKey, mark: _Mark) -> None:
        """Make a key due, together with what marked it before. It keeps its place, unless it is more urgent now."""
        # The hash of a key costs more than a look whether there is anything to look for.
        if self._again:
            self._again.pop(key, None)
        if self._later:
            mark = mark.with_earlier(self._later.pop(key, None))
        for kind, due in self._due.items():
            if due and key in due:
                mark = mark.with_earlier(due[key])
                if mark.kind != kind:
                    del due[key]
                break
        self._due[mark.kind][key] = mark

    def _rest(self, key: JobKey, now: float) -> None:
        self._resting.pop(key, None)
        self._resting[key] = now + PODS_SECONDS

    def _wake(self, now: float) -> None:
        """Make the keys due that were marked during a rest that is over now. These keys rest again."""
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


class _Span(NamedTuple):
    """The times of the first and the last change that have not taken effect yet."""

    first: float
    last: float


class SettingsChanges:
    """The changes that have not taken effect yet; safe to share between threads."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._pending: _Span | None = None

    def note(self) -> None:
        """Record a change now."""
        with self._lock:
            now = self._clock()
            self._pending = _Span(self._pending.first if self._pending else now, now)

    def take(self, settle_seconds: float) -> bool:
        """Return whether recorded changes are to take effect now, and forget them if so.

        Changes take effect once nothing has changed for `settle_seconds`. If the changes go on, they take effect after
        PATIENCE times as long.
        """
        with self._lock:
            pending, now = self._pending, self._clock()
            settled = pending is not None and (
                now - pending.last >= settle_seconds or now - pending.first >= PATIENCE * settle_seconds
            )
            if settled:
                self._pending = None
            return settled
