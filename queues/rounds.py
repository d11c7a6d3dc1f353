"""Rounds of picks: look at the store, choose, commit; and remember in between.

One rule: what is remembered saves time and is never the truth. Whatever goes wrong, the next round reads all anew.
"""

from dataclasses import replace

from queues.race import Race
from queues.rules import Rules
from queues.store import QueueStore
from queues.values import Committed

FEW = 8
"""Jobs of each queue that are looked at, at least; in a full pool, where room comes free for one or two at a time, no
more."""
NOTHING_PICKED = Committed(())


class Rounds:
    """One leader's rounds on one store; of one thread."""

    def __init__(self, store: QueueStore, rules: Rules) -> None:
        self._store = store
        self._rules = rules
        self._race: Race | None = None
        self._others: frozenset[str] = frozenset()
        """Queues of which the race does not know all that happened before its last change."""
        self._reach = 2**30
        self._refunds: list[tuple[str, int]] = []

    def refund(self, queue: str, cost: int) -> None:
        """The inverse pick, with the next round: a job came back before it had run."""
        self._refunds.append((queue, cost))

    def round(self, now: float, limit: int, most: int) -> Committed:
        """At most `limit` picks, looking at no more than `most` jobs of each queue; `now` is in seconds since 1970.

        Raises what the store raises.
        """
        race, self._race = self._race, None
        race = self._look(race, most)
        while self._refunds:
            race.refund(*self._refunds.pop())
        batch = race.picks(now, limit)
        self._reach = max(FEW, 2 * len(batch.picks))
        committed = self._store.commit(batch) if batch.picks else NOTHING_PICKED
        self._race = race if not batch.picks or self._holds(race, committed) else None
        return committed

    def _look(self, race: Race | None, most: int) -> Race:
        """The race as it stands now. All that may be looked at, where the first few can never run."""
        heads = min(most, self._reach)
        if race is None:
            race = Race(self._store.snapshot(heads), self._rules)
        else:
            more = self._others.union(race.hungry)
            race.update(self._store.snapshot(heads, race.change, more))
        self._others = frozenset()
        if heads < most and race.blind:
            race.update(self._store.snapshot(most))
        return race

    def _holds(self, race: Race, committed: Committed) -> bool:
        """Whether the race is still true. It knows its own picks; what others changed beside them it must be shown."""
        self._others = frozenset(committed.others)
        known = committed.alone or bool(committed.others)
        return race.committed(replace(committed, alone=known))
