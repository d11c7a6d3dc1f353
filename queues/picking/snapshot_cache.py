"""A snapshot of the queues for queries, which differences from the store keep up to date.

One rule: few reads, because Redis has picks to commit. The first jobs of every queue are read once. After this, only
changes are read, at most once a second.
"""

import threading
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace

from queues.picking import read_depth
from queues.picking.picker import Picker
from queues.placement.places import Places
from queues.rules import PickRules
from queues.store import QueueReader
from queues.values import Pick, Snapshot

FIRST = read_depth.LEAST
"""The number of jobs of each queue that are read before a query needs more."""
FRESH_SECONDS = 1.0


@dataclass(slots=True)
class SnapshotCache:
    """A cached snapshot of a store; safe to share between threads."""

    store: QueueReader
    clock: Callable[[], float]
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _snapshot: Snapshot | None = None
    _fresh_until: float = 0.0

    def read(self, heads: int = FIRST, more: Collection[str] = ()) -> Snapshot:
        """Return a snapshot of every queue, with up to `heads` jobs of the queues in `more`. Raises QueueError."""
        with self._lock:
            now = self.clock()
            fresh = now <= self._fresh_until <= now + FRESH_SECONDS  # the clock may have been set back
            snapshot = self._snapshot
            if snapshot is None or not fresh:
                snapshot = self._read(snapshot, FIRST, ())
            if can_show_more(snapshot, heads, more):
                snapshot = self._read(snapshot, heads, more)
            if snapshot is not self._snapshot:
                self._snapshot, self._fresh_until = snapshot, self.clock() + FRESH_SECONDS
            return snapshot

    def _read(self, before: Snapshot | None, heads: int, more: Collection[str]) -> Snapshot:
        if before is None:
            return self.store.snapshot(heads)
        snapshot = self.store.snapshot(heads, before.change, more)
        return snapshot if snapshot.whole else merge(before, snapshot)

    def forecast(
        self, rules: PickRules, count: int, *, roomy: bool = False, places: Places | None = None
    ) -> tuple[Snapshot, tuple[Pick, ...]]:
        """Return the next `count` picks, and the snapshot from which they are made. `places` are not changed.

        The method reads more jobs of the queues whose known jobs are all picked or cannot be picked. With `roomy`, only
        quotas limit the picks.
        """
        snapshot, heads = self.read(), FIRST
        depth = read_depth.per_queue(len(snapshot.queues))
        while True:
            forecast = Picker(snapshot, rules, roomy=roomy, places=places and places.copy())
            partly_read = set(forecast.partly_read(depth))
            picks = forecast.picks(self.clock(), count).picks
            short = nearly_used_up(snapshot, picks) if len(picks) < count else frozenset()
            partly_read |= set(forecast.partly_read(depth))
            if partly_read and can_show_more(snapshot, depth, partly_read):
                snapshot = self.read(depth, partly_read)
            elif short and heads < 4 * count:
                heads *= 4
                snapshot = self.read(heads, short)
            else:
                return snapshot, picks


def can_show_more(snapshot: Snapshot, heads: int, names: Collection[str]) -> bool:
    """Return whether one of these queues shows fewer jobs than `heads`, though more wait."""
    selected = set(names)
    views = (view for view in snapshot.queues if view.spec.name in selected)
    return any(len(view.heads) < min(heads, view.waiting) for view in views)


def merge(whole: Snapshot, difference: Snapshot) -> Snapshot:
    """Return a whole snapshot with a later difference applied. A difference never changes the settings."""
    changed = {view.spec.name: view for view in difference.queues}
    queues = tuple(changed.get(view.spec.name, view) for view in whole.queues)
    return replace(difference, queues=queues, pool=whole.pool, whole=True, departed=whole.departed)


def nearly_used_up(snapshot: Snapshot, picks: Collection[Pick]) -> frozenset[str]:
    """Return the queues that soon need more entries: half of their known jobs or more are picked, and more wait.

    The result is empty unless all known jobs of some queue are picked.
    """
    picked = Counter(pick.waiting.entry.queue for pick in picks)
    counts = {view.spec.name: len(view.heads) for view in snapshot.queues if view.waiting > len(view.heads)}
    if not any(picked[name] >= count for name, count in counts.items()):
        return frozenset()
    return frozenset(name for name, count in counts.items() if 2 * picked[name] >= count)
