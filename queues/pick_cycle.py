"""Rounds of picks: read the store, pick, commit; and keep a working copy of the queues between rounds.

One rule: the working copy saves time and is never the truth. After any error the next round reads everything.
"""

import contextlib
import math
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import NamedTuple

from crds.keys import JobKey
from crds.resources.amounts import PODS, Amounts
from queues import errors
from queues.picking.backfill import JobEnds, Shadows, no_job_ends
from queues.picking.picker import OutsideLimits, Picker
from queues.placement.places import Places
from queues.resizing import recall_search, resize_plan
from queues.resizing.recall_search import HeldRoom
from queues.resizing.values import ElasticJob, IdleRoom, Plan
from queues.rules import Patience, PickRules
from queues.store import IdleGrowth, PendingCommit, QueueStore, RaisedCharge
from queues.unread_search import UnreadSearch
from queues.values import Batch, CommitResult, NextEntries, Refusal, Reservation

Hold = tuple[float, Amounts]
"""For how many seconds a job held its room, and what it asked for."""
FEW = 8
"""The least number of entries that are read ahead of each queue. More are read if over half of them go in a round."""
AGES_SECONDS = 5.0
"""How long the patience of jobs stands. With many running jobs, their median age costs a few milliseconds."""
BURST = 10
"""The most batches after one reading. What other processes change is not seen until the next reading."""
ON_THE_WAY = 3
"""The most batches that the store has received and not yet answered, so that it need not wait between two of them."""
STEP = 8
"""The first batch is 2/STEP of a whole one. Each further batch is larger by 1/STEP.

The store is idle while the first batch is picked, and no batch should take longer to pick than the one before takes to
commit."""


class _Pending(NamedTuple):
    """A batch whose commit has begun, or is about to begin."""

    commit: PendingCommit
    batch: Batch


class _Done(NamedTuple):
    """A batch whose commit is done."""

    pending: _Pending
    committed: CommitResult


@dataclass(frozen=True, slots=True)
class CycleResult:
    """The result of one round."""

    picked: int
    refused: Refusal
    """Why the store refused a pick and so ended the round; empty if it refused none."""
    _done: tuple[_Done, ...]

    @property
    def keys(self) -> Iterator[JobKey]:
        """The jobs that were picked."""
        for done in self._done:
            for pick in done.pending.batch.picks[: done.committed.picked]:
                yield JobKey.parse(pick.waiting.ticket[0])

    @property
    def reservations(self) -> tuple[Reservation, ...]:
        """The reservations of the round. The values are decoded at each use, because few callers need them."""
        return tuple(chain.from_iterable(done.pending.commit.reservations() for done in self._done))


class PickCycle:
    """The rounds of one leader on one store. Only one thread may use the object."""

    def __init__(
        self,
        store: QueueStore,
        rules: PickRules,
        job_ends: Callable[[], JobEnds | None] = no_job_ends,
        outside: OutsideLimits | None = None,
        ages: Callable[[float], Mapping[str, Sequence[float]]] = lambda _: {},
        holds: Callable[[], Sequence[Hold]] = tuple,
        places: Callable[[], Places | None] = lambda: None,
    ) -> None:
        """`job_ends` is called in each round in which room is reserved for a job; `outside` for each pick.

        `ages` returns the ages of the running jobs of each queue at a time, in seconds; `holds` for how many seconds
        the jobs that ended last held their room. `places` returns the places of jobs on nodes in each round; None: only
        sums of amounts count."""
        self._outside = outside
        self._places = places
        self._store = store
        self._search = UnreadSearch(store)
        self._job_ends = job_ends
        self._shadows = Shadows()
        self._rules = rules
        self._ages, self._holds = ages, holds
        self._patience = rules.patience({})
        self._aged = -math.inf
        """When the patience was computed from the ages of the running jobs."""
        self._picker: Picker | None = None
        self._change = 0
        """The store's last change that the picker knows, except for those of `_others`."""
        self._others: frozenset[str] = frozenset()
        """Queues that other processes changed before `_change`, in ways that the picker does not know."""
        self._only_unrunnable = False
        """Whether all entries of a queue that may be read can never run."""
        self._reach = FEW
        """The number of entries of each queue that are read ahead."""
        self._refunds: list[tuple[str, int]] = []
        """Queues and their refunds that no commit has carried yet."""
        self._raised: list[RaisedCharge] = []
        """The raised charges that no commit has carried yet."""
        self._claims: dict[str, JobKey | None] = {}
        """The claims to open by queue (None: to close) that no commit has carried yet."""
        self._hastened: dict[str, JobKey] = {}
        """By queue, the jobs whose patience is to end that no commit has carried yet."""

    def refund(self, queue: str, cost: int) -> None:
        """Refund a queue in the next round the price that it has paid for a job that came back before it was
        granted."""
        self._refunds.append((queue, cost))

    def forget(self, keys: Iterable[JobKey]) -> None:
        """Drop the places on nodes of jobs whose reservations were freed."""
        if (places := self._places()) is not None:
            for key in keys:
                places.release(str(key))

    def reread(self) -> None:
        """Read all waiting jobs anew in the next round: some ask for other pods than before."""
        self._picker = None

    def charge(self, raised: Iterable[RaisedCharge]) -> None:
        """Charge queues in the next round for jobs that take more than when they were picked."""
        self._raised += raised

    def claim(self, queue: str, key: JobKey) -> None:
        """Open a claim for the first job of a queue in the next round (`queues.picking.open_claims`).

        Nothing happens if the job is no longer first at that time. A queue has one claim at most."""
        self._claims[queue] = key

    def replace_claims(self, claims: Mapping[str, JobKey]) -> None:
        """Open these claims in the next round, by queue, and close all other claims."""
        self._claims = {**dict.fromkeys(self.claims), **claims}

    def hasten(self, queue: str, key: JobKey) -> None:
        """End the patience of the first job of a queue in the next round, so that it may get the pool's reservation.

        Nothing happens if the job is no longer first at that time."""
        self._hastened[queue] = key

    @property
    def claims(self) -> Mapping[str, JobKey]:
        """The queues with an open claim after the last round, and the job that has it; empty if the claims are not
        known.
        """
        return {} if self._picker is None else self._picker.claims.keys()

    def run(self, now: float, limit: int, most: int) -> CycleResult:
        """Read the store, then pick and commit in batches of at most `limit` jobs, and return the result.

        Reads up to `most` entries of each queue. `now` is in seconds since 1970. Raises the errors of the store.

        If more jobs can be picked than a batch holds, the next batch is picked and sent before the store has answered
        the last one. If the last batch does not stand, the store refuses the following batches, and the picker is
        dropped.
        """
        picker, self._picker, places = self._picker, None, self._places()
        picker = self._read(picker, most, now)
        for queue, cost in self._refunds:
            picker.settle(queue, -cost)
        for raised in self._raised:
            picker.charge_raised(*raised)
        _change_claims(picker, self._claims, self._hastened, now)
        picker.patience = self._patience_at(now, picker)
        picker.prepare_loans(now, self._job_ends)
        done = self._commit(picker, places, now, limit, min(most, self._reach))
        if not done or done[0].committed.picked or not done[0].committed.refused:
            # The first batch carries the charges and the claims, with its first pick or in its settlement.
            self._refunds.clear()
            self._raised.clear()
            self._claims.clear()
            self._hastened.clear()
        picks = chain.from_iterable(batch.pending.batch.picks for batch in done)
        counts = Counter(pick.waiting.queue for pick in picks)
        self._reach = max(FEW, 2 * max(counts.values(), default=0))
        self._search.move(counts)
        refused: Refusal = next((batch.committed.refused for batch in done if batch.committed.refused), "")
        self._picker = None if refused or picker.has_set_aside else picker
        picked = sum(batch.committed.picked for batch in done)
        return CycleResult(picked, refused, tuple(done))

    @property
    def keeps_room(self) -> bool:
        """Whether the pool keeps room for a job after the last round, for which its queue pays by the second."""
        return self._picker is not None and bool(self._picker.reservation.liable)

    @property
    def known(self) -> tuple[int, ...]:
        """Numbers that change with the reads and picks of the last round; empty if the round did not stand."""
        return () if self._picker is None else (self._change, len(self._others), *self._picker.version)

    def plan_resizes(
        self, jobs: Iterable[ElasticJob], now: float, idle_since: IdleRoom, seen: frozenset[str] = frozenset()
    ) -> Plan | None:
        """Return which jobs grow and which jobs give room back after the last round; None if that round did not stand.

        `idle_since` and `seen` are those of the previous plan.
        """
        if self._picker is None:
            return None
        plan = resize_plan.plan(self._picker, jobs, now, idle_since, seen)
        if (places := self._picker.pool.places) is not None:
            places.promised = plan.nodes
        return plan

    def find_recalls(
        self, holders: Sequence[HeldRoom], leaving: Sequence[HeldRoom], refused: Collection[JobKey], now: float
    ) -> tuple[JobKey, ...]:
        """Return which holders give their room back after the last round (`queues.resizing.recall_search`); none if
        that round did not stand."""
        return () if self._picker is None else recall_search.find(self._picker, holders, leaving, refused, now)

    def grow_idle(self, growths: Sequence[IdleGrowth]) -> list[Refusal]:
        """Give jobs the further workers of the last plan (`QueueStore.grow_idle`). Raises the errors of the store."""
        if self._picker is None:
            return ["revision"] * len(growths)
        refusals, places = self._store.grow_idle(growths, *self._picker.version), self._picker.pool.places
        for growth, refused in zip(growths, refusals, strict=True):
            if places is not None and not refused:
                key = str(growth.key)
                places.take(key, places.gang_of(key, "grow", {PODS: growth.workers}))
        return refusals

    def _commit(self, picker: Picker, places: Places | None, now: float, limit: int, heads: int) -> list[_Done]:
        """Pick and commit batch after batch, and return all of them. The places of picks that the store refused are
        dropped; after an error, which of the picks stand is not known."""
        if places is None:
            return [*self._batches(picker, now, limit, heads)]
        was_outdated, places.is_outdated = places.is_outdated, True
        done = [*self._batches(picker, now, limit, heads)]
        places.is_outdated = was_outdated
        for batch in done:
            for pick in batch.pending.batch.picks[batch.committed.picked :]:
                places.release(pick.waiting.ticket[0])
        return done

    def _patience_at(self, now: float, picker: Picker) -> Patience:
        if abs(now - self._aged) >= AGES_SECONDS:  # the clock of the machine may have been set back
            self._aged, self._patience = now, self._rules.patience(self._ages(now), _costs(picker, self._holds()))
        return self._patience

    def _batches(self, picker: Picker, now: float, limit: int, heads: int) -> Iterator[_Done]:
        """Commit batch after batch, and yield each when it is done. A batch follows the previous batch, whose result
        may still be unknown.
        """
        begun: deque[_Pending] = deque()
        name = ""
        for number in range(BURST):
            most = max(1, min(limit, limit * (number + 2) // STEP))
            following = self._pick_batch(picker, now, most, heads, name)
            if following is not None:
                following.commit.begin(self._change)
                begun.append(following)
                name = following.commit.name
            if following is None or len(begun) == ON_THE_WAY:
                if not begun:
                    return
                done = self._finish(picker, begun)
                yield done
                if done.committed.refused:
                    break
        while begun:
            yield self._finish(picker, begun)

    def _finish(self, picker: Picker, begun: deque[_Pending]) -> _Done:
        """Wait for the oldest batch, and return that batch. If the store refused it, it refuses those behind it,
        too."""
        pending = begun.popleft()
        committed = pending.commit.outcome()
        if committed.alone or committed.others:
            # The picker knows its own picks; the queues that other writers changed at the same time are read in the
            # next round.
            self._change = committed.change
            self._others |= frozenset(committed.others)
        self._add_entries(picker, pending, committed)
        return _Done(pending, committed)

    def _pick_batch(self, picker: Picker, now: float, limit: int, heads: int, follows: str) -> _Pending | None:
        """Return a batch that is ready to begin, with a request for entries that are needed soon; None if there is
        nothing to commit."""
        if picker.only_unrunnable and not self._only_unrunnable:
            return None  # one more queue shows only entries that can never run: more of it must be read first
        batch = picker.picks(now, limit)
        if not batch.picks and batch.settlement is None:
            return None
        # The store has the jobs that were set aside, so it would count other entries as known.
        needed = {} if picker.has_set_aside else picker.request_entries(heads)
        batch = replace(batch, heads=heads, needs_entries=needed, follows=follows)
        return _Pending(self._store.pending_commit(batch), batch)

    def _add_entries(self, picker: Picker, pending: _Pending, committed: CommitResult) -> None:
        """Add the entries that the batch requested. Queues that others have changed are left to the next reading."""
        behind: tuple[NextEntries, ...] = ()
        if committed.alone or committed.others:
            with contextlib.suppress(errors.Unreadable):  # the next reading raises it, when no batch is on its way
                behind = pending.commit.next_entries()
        entries = {view.queue: view for view in behind if view.queue not in self._others}
        picker.add_entries(pending.batch.needs_entries, entries)

    def _read(self, picker: Picker | None, most: int, now: float) -> Picker:
        """Return a picker that knows the present store. Read up to `most` entries of queues whose first few
        cannot go."""
        heads = min(most, self._reach)
        if picker is None:
            snapshot = self._store.snapshot(heads)
            picker = Picker(snapshot, self._rules, self._shadows, places=self._places())
            picker.outside = self._outside
        else:
            snapshot = self._store.snapshot(heads, self._change, self._others, _needs_entries(picker, most))
            picker.update(snapshot)
        while more := (picker.lacks_entries and _needs_entries(picker, most)) or picker.partly_read(most):
            snapshot = self._store.snapshot(most, snapshot.change, (), more)
            picker.update(snapshot)
        self._change, self._others = snapshot.change, frozenset()
        self._search.run(picker, self._change, most, now)
        self._only_unrunnable = picker.only_unrunnable
        return picker


def _change_claims(
    picker: Picker, claims: Mapping[str, JobKey | None], hastened: Mapping[str, JobKey], now: float
) -> None:
    """Open claims by queue (None: close it), and end the patience of jobs."""
    for queue, key in claims.items():
        if key is None:
            picker.claims.close(queue)
        else:
            picker.claims.open(queue, key, now)
    for queue, key in hastened.items():
        picker.claims.hasten(queue, key, now)


def _costs(picker: Picker, holds: Iterable[Hold]) -> list[tuple[float, int]]:
    """Return for how many seconds jobs held their room, and what each costs."""
    price = picker.pool.prices.of
    return [(seconds, price(charge)) for seconds, charge in holds]


def _needs_entries(picker: Picker, most: int) -> Mapping[str, int]:
    """Return the queues with fewer than `most` known entries that need more, and the number that remains."""
    return {name: count for name, count in picker.needs_entries.items() if count < most}
