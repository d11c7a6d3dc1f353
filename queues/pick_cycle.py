"""Rounds of picks: look at the store, choose, commit; and remember in between.

One rule: what is remembered saves time and is never the truth. Whatever goes wrong, the next round reads all anew.
"""

import contextlib
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain
from typing import NamedTuple

from queues import errors
from queues.picking.backfill import Forecast, Shadows, no_forecast
from queues.picking.picker import Race
from queues.rules import Rules
from queues.store import PendingCommit, QueueStore
from queues.values import Batch, Behind, Committed, Refusal, Reservation

FEW = 8
"""Jobs of each queue that are looked at ahead, at least; more where more than half of them go in one round."""
BURST = 10
"""Batches of one look, at most: as long as nobody looks, what others changed is not seen."""
ON_THE_WAY = 3
"""Batches that the store has been given and not yet answered, at most: it need not wait for us between two of them."""
STEP = 8
"""The first batch is two of so many parts of a whole one, and each next one is a part larger: while the first is chosen
the store has nothing to do yet, and a batch is not to take longer to choose than the one before to commit."""


@dataclass(frozen=True, slots=True)
class Round:
    """What became of one round."""

    picked: int
    refused: Refusal
    """What ended it before its time, if anything did."""
    _commits: tuple[PendingCommit, ...]

    @property
    def reservations(self) -> tuple[Reservation, ...]:
        """The reservations as they were made, spelled out anew each time: hardly anybody asks."""
        return tuple(chain.from_iterable(commit.reservations() for commit in self._commits))


class _Pending(NamedTuple):
    """A batch that is being committed."""

    commit: PendingCommit
    batch: Batch


class _Made(NamedTuple):
    """One that is."""

    pending: _Pending
    committed: Committed


class Rounds:
    """One leader's rounds on one store; of one thread."""

    def __init__(self, store: QueueStore, rules: Rules, forecast: Callable[[], Forecast | None] = no_forecast) -> None:
        """`forecast` is asked in each round in which room is kept for a job."""
        self._store = store
        self._forecast = forecast
        self._shadows = Shadows()
        self._rules = rules
        self._race: Race | None = None
        self._change = 0
        """The store's last change that the race knows, but for `_others`."""
        self._others: frozenset[str] = frozenset()
        """Queues of which the race does not know all that happened before its last change."""
        self._blind = False
        """Whether more of a queue than may be looked at can never run."""
        self._reach = FEW
        self._due: list[tuple[str, int]] = []
        """Queues, and what they are to pay beside their picks, or to get back (below 0), until the store knows it."""

    def refund(self, queue: str, cost: int) -> None:
        """The inverse pick, with the next round: a job came back before it was granted."""
        self._due.append((queue, -cost))

    def charge(self, charges: Iterable[tuple[str, int]]) -> None:
        """With the next round these queues pay for jobs that cost so much more than when they were picked."""
        self._due += charges

    def round(self, now: float, limit: int, most: int) -> Round:
        """What was picked after one look at no more than `most` jobs of each queue, in batches of at most `limit`.

        `now` is in seconds since 1970. Raises what the store raises.

        While more could go than a batch holds, the next ones are chosen and sent before the store has answered to the
        last one, as if it were sure to stand. If it does not, the store refuses what follows it, and what was chosen
        after it is forgotten.
        """
        race, self._race = self._race, None
        race = self._look(race, most)
        for queue, cost in self._due:
            race.settle(queue, cost)
        race.foresee(now, self._forecast)
        made = [*self._batches(race, now, limit, min(most, self._reach))]
        if not made or made[0].committed.picked or not made[0].committed.refused:
            self._due.clear()  # the first batch carries it, with its first pick or without one
        picks = chain.from_iterable(each.pending.batch.picks for each in made)
        self._reach = max(FEW, 2 * max(Counter(pick.waiting.queue for pick in picks).values(), default=0))
        refused: Refusal = next((each.committed.refused for each in made if each.committed.refused), "")
        self._race = None if refused else race
        return Round(sum(each.committed.picked for each in made), refused, tuple(each.pending.commit for each in made))

    def _batches(self, race: Race, now: float, limit: int, heads: int) -> Iterator[_Made]:
        """Each batch follows the one before, of which nothing may be known yet."""
        begun: deque[_Pending] = deque()
        last = ""
        for number in range(BURST):
            most = max(1, min(limit, limit * (number + 2) // STEP))
            following = self._chosen(race, now, most, heads, last)
            if following is not None:
                following.commit.begin(self._change)
                begun.append(following)
                last = following.commit.name
            if following is None or len(begun) == ON_THE_WAY:
                if not begun:
                    return
                made = self._made(race, begun)
                yield made
                if made.committed.refused:
                    break
        while begun:
            yield self._made(race, begun)

    def _made(self, race: Race, begun: deque[_Pending]) -> _Made:
        """What became of the first one that is on its way. If it was refused, those behind it are, too."""
        pending = begun.popleft()
        committed = self._told(pending.commit.outcome())
        self._learn(race, pending, committed)
        return _Made(pending, committed)

    def _chosen(self, race: Race, now: float, limit: int, heads: int, follows: str) -> _Pending | None:
        """A batch that only has to be sent, and asks for the jobs that will be wanted soon; None if there is nothing to
        commit."""
        if race.blind and not self._blind:
            return None  # of one more queue only jobs are known that can never run: more of it must be looked at first
        batch = race.picks(now, limit)
        if not batch.picks and batch.settlement is None:
            return None
        batch = replace(batch, heads=heads, hungry=race.ask(heads), follows=follows)
        return _Pending(self._store.pending_commit(batch), batch)

    def _learn(self, race: Race, pending: _Pending, committed: Committed) -> None:
        """What the batch has asked for. What somebody else has changed is left to the next look."""
        shown: tuple[Behind, ...] = ()
        if committed.alone or committed.others:
            with contextlib.suppress(errors.Unreadable):  # the next look meets it again, with nothing on its way
                shown = pending.commit.shown()
        race.learn(pending.batch.hungry, {each.queue: each for each in shown if each.queue not in self._others})

    def _look(self, race: Race | None, most: int) -> Race:
        """The race as it stands now. All that may be looked at, where none of the first few can go."""
        heads = min(most, self._reach)
        if race is None:
            snapshot = self._store.snapshot(heads)
            race = Race(snapshot, self._rules, self._shadows)
        else:
            snapshot = self._store.snapshot(heads, self._change, self._others, _hungry(race, most))
            race.update(snapshot)
        while hungry := (race.starved and _hungry(race, most)) or race.stuck(most):
            snapshot = self._store.snapshot(most, snapshot.change, (), hungry)
            race.update(snapshot)
        self._change, self._others = snapshot.change, frozenset()
        self._blind = race.blind
        return race

    def _told(self, committed: Committed) -> Committed:
        """The race knows its own picks; what others changed beside them it must be shown."""
        if committed.alone or committed.others:
            self._change = committed.change
            self._others |= frozenset(committed.others)
        return committed


def _hungry(race: Race, most: int) -> Mapping[str, int]:
    """Queues of which more jobs should be known, and how many are."""
    return {name: count for name, count in race.hungry.items() if count < most}
