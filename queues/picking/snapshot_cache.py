"""A snapshot of the queues kept up to date by differences, for those who only look.

One rule: gentle: the first jobs of every queue are read once, and after that what has changed, at most once a second;
Redis has picks to commit.
"""

import threading
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace

from queues.picking import read_depth
from queues.picking.forecast import Forecast
from queues.rules import Rules
from queues.store import QueueReader
from queues.values import Pick, Snapshot

FIRST = read_depth.LEAST
"""Jobs of each queue that are looked at before anybody asks for more."""
FRESH_SECONDS = 1.0


@dataclass(slots=True)
class Following:
    """Looks at a store; safe to share between threads."""

    store: QueueReader
    clock: Callable[[], float]
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _kept: Snapshot | None = None
    _until: float = 0.0

    def look(self, heads: int = FIRST, more: Collection[str] = ()) -> Snapshot:
        """Every queue, and of those in `more` up to `heads` jobs. QueueError."""
        with self._lock:
            now = self.clock()
            fresh = now <= self._until <= now + FRESH_SECONDS  # somebody may have set the clock back
            kept = self._kept
            if kept is None or not fresh:
                kept = self._newest(kept, FIRST, ())
            if lacking(kept, heads, more):
                kept = self._newest(kept, heads, more)
            if kept is not self._kept:
                self._kept, self._until = kept, self.clock() + FRESH_SECONDS
            return kept

    def _newest(self, kept: Snapshot | None, heads: int, more: Collection[str]) -> Snapshot:
        found = self.store.snapshot(heads) if kept is None else self.store.snapshot(heads, kept.change, more)
        return found if kept is None or found.whole else merged(kept, found)

    def forecast(self, rules: Rules, count: int, *, roomy: bool = False) -> tuple[Snapshot, tuple[Pick, ...]]:
        """The next picks by the picker itself, and what they are made from; `roomy`: with nothing scarce but quotas.
        Reads more of the queues whose known jobs are used up, or cannot go."""
        snapshot, heads = self.look(), FIRST
        deep = read_depth.per_queue(len(snapshot.queues))
        while True:
            forecast = Forecast(endless(snapshot) if roomy else snapshot, rules)
            stuck = set(forecast.partly_read(deep))
            picks = forecast.picks(self.clock(), count).picks
            short = starved(snapshot, picks) if len(picks) < count else frozenset()
            stuck |= set(forecast.partly_read(deep))
            if stuck and lacking(snapshot, deep, stuck):
                snapshot = self.look(deep, stuck)
            elif short and heads < 4 * count:
                heads *= 4
                snapshot = self.look(heads, short)
            else:
                return snapshot, picks


def lacking(snapshot: Snapshot, heads: int, names: Collection[str]) -> bool:
    """Whether one of these queues shows fewer jobs than it could."""
    wanted = set(names)
    views = (view for view in snapshot.queues if view.spec.name in wanted)
    return any(len(view.heads) < min(heads, view.waiting) for view in views)


def merged(whole: Snapshot, difference: Snapshot) -> Snapshot:
    """The later state of everything: a difference shows what changed, and no other settings."""
    changed = {view.spec.name: view for view in difference.queues}
    queues = tuple(changed.get(view.spec.name, view) for view in whole.queues)
    return replace(difference, queues=queues, pool=whole.pool, whole=True, departed=whole.departed)


def starved(snapshot: Snapshot, picks: Collection[Pick]) -> frozenset[str]:
    """Queues most of whose known jobs are picked, though more wait; none if no queue's are used up."""
    taken = Counter(pick.waiting.entry.queue for pick in picks)
    known = {view.spec.name: len(view.heads) for view in snapshot.queues if view.waiting > len(view.heads)}
    if not any(taken[name] >= count for name, count in known.items()):
        return frozenset()
    return frozenset(name for name, count in known.items() if 2 * taken[name] >= count)


def endless(snapshot: Snapshot) -> Snapshot:
    """The same moment with a pool that has room for everything."""
    return replace(snapshot, pool=None)
