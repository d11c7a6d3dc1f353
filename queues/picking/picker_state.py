"""The working copy of all queues, which lives from one round of picks to the next.

One rule: pure. A copy to which every difference was applied equals a copy of the whole snapshot.

A queue contends if it is open and has a job that its quota and cohort allow now. It bids for its turn with this job
(`queues.picking.fair_share`). A change marks its queue as dirty; before the next pick, the dirty queues bid again.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence

from crds.resources.amounts import NOTHING, Amounts
from queues.picking import queue_state, quotas
from queues.picking.backfill import Backfill, Shadows
from queues.picking.collected_room import CohortClaims
from queues.picking.fair_share import FairShare
from queues.picking.further_workers import FurtherWorkers
from queues.picking.grouped_index import Bid
from queues.picking.kept_room import PoolReservation
from queues.picking.pool import Pool
from queues.picking.prices import Prices
from queues.picking.queue_state import QueueState
from queues.picking.quotas import Cohort
from queues.placement.gangs import Gang
from queues.placement.places import Places
from queues.rules import Patience, PickRules
from queues.values import NextEntries, QueueSnapshot, Snapshot, WaitingEntry


class UnreadEntries:
    """The names of queues whose known entries are, or soon will be, too few."""

    __slots__ = ("_queues", "exhausted", "needs_entries", "only_unrunnable", "partly_read", "read_to_limit")

    def __init__(self, queues: Mapping[str, QueueState]) -> None:
        """`queues` belongs to the caller, who calls `add` after each reading and `note` after each pick."""
        self._queues = queues
        self.needs_entries: set[str] = set()
        """Queues that have few known entries, or none that can ever run, while more entries wait and are not requested
        yet."""
        self.exhausted: set[str] = set()
        """Open queues whose next job is unread. No pick is possible while there is one."""
        self.only_unrunnable: set[str] = set()
        """Open queues whose known entries can never run, though others wait behind. They take no part in picks."""
        self.partly_read: set[str] = set()
        """Open queues in which entries wait behind the known ones."""
        self.read_to_limit: set[str] = set()
        """Those of them of which no more entries are read until some of the known ones go."""

    def add(self, queue: QueueState) -> None:
        """Note a queue whose known entries have changed."""
        name = queue.spec.name
        for names in (self.needs_entries, self.exhausted, self.only_unrunnable):
            names.discard(name)
        self.read_to_limit.discard(name)
        _set_membership(self.partly_read, name, queue.is_partly_read)

    def note(self, queue: QueueState) -> None:
        """Note a queue whose known entries are few."""
        name, is_open = queue.spec.name, queue.spec.open
        _set_membership(self.needs_entries, name, queue.requested is None)
        _set_membership(self.exhausted, name, queue.is_exhausted and is_open)
        _set_membership(self.only_unrunnable, name, queue.has_only_unrunnable and is_open)

    def counts(self) -> Mapping[str, int]:
        """Return the queues in `needs_entries`, and how many known entries of each remain."""
        return {name: self._queues[name].remaining for name in self.needs_entries}

    def request(self, limit: int) -> Mapping[str, int]:
        """Return those of `counts` that have fewer than `limit` entries. They count as requested."""
        counts = {name: count for name, count in self.counts().items() if count < limit}
        for name, count in counts.items():
            self._queues[name].requested = count
            self.needs_entries.discard(name)
        return counts


def _set_membership(names: set[str], name: str, belongs: bool) -> None:
    (names.add if belongs else names.discard)(name)


class PickerState:
    """The queues as they will be once every pick stands."""

    def __init__(
        self,
        snapshot: Snapshot,
        rules: PickRules,
        shadows: Shadows | None = None,
        *,
        roomy: bool = False,
        places: Places | None = None,
    ) -> None:
        """Begin with a whole snapshot. `shadows` and `places` outlive the copy: they pass from one copy to the next.
        With `roomy`, the pool has room for everything; prices stay."""
        self._rules, self._roomy = rules, roomy
        self._places = None if roomy else places
        self._shadows = Shadows() if shadows is None else shadows
        self._now = 0.0
        self.patience = Patience()
        """For how long others may pass jobs."""
        self._reset(snapshot)

    def _reset(self, snapshot: Snapshot) -> None:
        """Replace everything by a whole snapshot."""
        self._snapshot = snapshot
        prices = Prices(self._rules.cost, snapshot.pool, [view.spec for view in snapshot.queues])
        capacity = NOTHING if snapshot.pool is None or self._roomy else snapshot.pool
        self.pool = Pool(capacity, snapshot.pool_usage, prices, self._places if capacity else None)
        self._scarce = bool(self.pool.capacity)
        """Whether the pool limits anything."""
        self._cohorts = quotas.cohorts(view.spec for view in snapshot.queues)
        accounts = {**snapshot.departed, **{view.spec.name: view.account for view in snapshot.queues}}
        self._fair_share = FairShare(snapshot.clock, accounts, prices.scheme)
        self._queues: dict[str, QueueState] = {}
        self.reservation = PoolReservation(self._queues, self.pool, self._fair_share, self.patience.pool)
        self.claims = CohortClaims(self._queues, self._cohorts, self.reservation)
        self._further = FurtherWorkers(self._cohorts, self.pool, self.reservation)
        self._backfill = Backfill(
            self._queues, self._cohorts, self.pool, self._fair_share, self.reservation, self._shadows
        )
        self._unread = UnreadEntries(self._queues)
        self._dirty: set[str] = set()
        """Queues that must bid again."""
        self._stale_cohorts: set[str] = set()
        """Cohorts all of whose members must bid again."""
        self._uncounted: set[str] = set()
        """Cohorts whose usage must be summed up again."""
        for view in snapshot.queues:
            self._load(view)

    # Changes in the store

    def update(self, snapshot: Snapshot) -> None:
        """Apply what has changed since the last snapshot. A difference changes only the queues that it shows."""
        if snapshot.whole:
            self._reset(snapshot)
            return
        self._snapshot = snapshot
        self.pool.set_used(snapshot.pool_usage)
        for view in snapshot.queues:
            self._load(view)
        if self.pool.drop_groups(len(self._queues)):
            self._dirty.update(self._queues)
            for queue in self._queues.values():
                queue.bid_demand = None

    def add_entries(self, requested: Iterable[str], entries: Mapping[str, NextEntries]) -> None:
        """Add the entries that were requested for some queues. A queue without `entries` can be requested again.

        They are the entries behind the known ones after all picks that were made before the request.
        """
        for name in requested:
            queue, behind = self._queues[name], entries.get(name)
            if behind is not None:
                self._note_gangs(behind.heads)
                queue.extend(behind)
            queue.requested = None
            self._mark_dirty(queue)
            cohort = self._cohorts.get(queue.spec.cohort)
            if cohort is not None and cohort.first_changed():
                self._stale_cohorts.add(queue.spec.cohort)
            self._dirty |= self._further.members(queue.spec.cohort)

    def set_others(self, name: str, entries: Sequence[WaitingEntry]) -> None:
        """Note the jobs that a search behind the known entries of a queue has found."""
        queue = self._queues[name]
        self._note_gangs(entries)
        queue.set_others(entries)
        if entries:
            queue.bid_demand = None
            self._mark_dirty(queue)

    def settle(self, queue: str, cost: int) -> None:
        """Charge a queue apart from its picks. A cost below 0 refunds a pick that was not granted."""
        self.reservation.settle(queue, cost)

    def _load(self, view: QueueSnapshot) -> None:
        spec = view.spec
        cohort = self._cohorts.get(spec.cohort)
        self._note_gangs(view.heads)
        if view.after:
            queue = self._queues[spec.name]
            queue.extend(view)
        else:
            before = self._queues.get(spec.name)  # a difference changes no settings, so the ceiling stays
            ceiling = before.ceiling if before else quotas.ceiling(spec, cohort, self.pool.capacity)
            queue = self._queues[spec.name] = QueueState(view, ceiling)
        if cohort is not None:
            cohort.queues[spec.name] = queue
            self._uncounted.add(spec.cohort)
        self._mark_dirty(queue)

    def _note_gangs(self, entries: Iterable[WaitingEntry]) -> None:
        """Note which pods of these jobs need nodes."""
        places, found = self.pool.places, dict[Gang | None, bool]()
        latest, placeable = None, True
        if places is not None:
            for entry in entries:
                entry.gang = gang = places.gang_of(entry.ticket[0], entry.ticket[2], entry.demand)
                if gang is not latest:  # most entries are like the one before
                    if gang not in found:
                        found[gang] = places.could_hold(gang)
                    latest, placeable = gang, found[gang]
                entry.placeable = placeable

    def _mark_dirty(self, queue: QueueState) -> None:
        """Mark a queue whose known entries have changed."""
        self._dirty.add(queue.spec.name)
        self.reservation.add(queue)
        self.claims.add(queue)
        self._unread.add(queue)

    # Queries

    def queue(self, name: str, now: float) -> QueueState | None:
        """Return a queue as it is now; None if there is none of that name."""
        return self.queues(now).get(name)

    def queues(self, now: float) -> Mapping[str, QueueState]:
        """Return all queues by name, as they are now."""
        self._now = now
        self._refresh()
        self._reserve()
        return self._queues

    def cohort(self, name: str) -> Cohort | None:
        """Return a cohort as it is now; None if there is none of that name."""
        return self._cohorts.get(name)

    @property
    def version(self) -> tuple[int, int]:
        """The epoch of the leader, and the revision of the settings that it knows."""
        return self._snapshot.epoch, self._snapshot.revision

    @property
    def reservation_holder(self) -> str:
        """The queue whose first job holds the pool's reservation; empty if none does."""
        return "" if self.reservation.holder is None else self.reservation.holder.spec.name

    @property
    def rules(self) -> PickRules:
        """The rules of picks."""
        return self._rules

    def behind(self, name: str) -> float:
        """Return how much cost a queue is behind its share; below 0: ahead of it."""
        return self._fair_share.lag(name)

    # Entries to read

    def partly_read(self, limit: int) -> Mapping[str, int]:
        """Return the queues with fewer than `limit` known entries that need more, because no known one can go now.

        The values are the numbers of known entries that remain.
        """
        self._refresh()
        self._reserve()
        names = self._unread.partly_read
        read_to_limit = [name for name in names if self._queues[name].remaining >= limit]
        names.difference_update(read_to_limit)
        self._unread.read_to_limit.update(read_to_limit)
        for name in [name for name in self._unread.exhausted if self._queues[name].remaining >= limit]:
            self._queues[name].end_reading()  # else no queue could pick until this queue changes
            self._unread.note(self._queues[name])
        return {name: self._queues[name].remaining for name in names if self._is_stuck(self._queues[name])}

    @property
    def read_to_limit(self) -> Collection[str]:
        """The queues with unread entries of which `partly_read` returns no more."""
        return self._unread.read_to_limit

    def stuck(self, name: str) -> QueueState | None:
        """Return a queue if none of its known jobs can go now, and others may."""
        queue = self._queues[name]
        return queue if self._is_stuck(queue) else None

    def _is_stuck(self, queue: QueueState) -> bool:
        if not queue.remaining or not (queue.first is None or not queue.spec.strict):
            return False
        return not (self.pool.first_fitting(queue) if self._scarce else queue.eligible)

    # Bids

    def _refresh(self) -> None:
        """Apply what was loaded or picked since the last refresh, and let queues bid again."""
        self._apply()
        self._refresh_bids()

    def _apply(self) -> None:
        """Sum up again what cohorts use whose members were loaded, and what is claimed where claims have changed."""
        for name in self._uncounted:
            cohort = self._cohorts[name]
            roomy = cohort.roomy
            cohort.count()
            if not (roomy and cohort.roomy):
                self._stale_cohorts.add(name)
            self._dirty |= self._further.members(name)
        self._uncounted = set()
        for name in self.claims.outdated:
            queue = self._queues[name]
            self._dirty.add(name)
            if queue.spec.cohort:
                self._cohorts[queue.spec.cohort].note_claim(queue)
                self._stale_cohorts.add(queue.spec.cohort)
        self.claims.outdated.clear()

    def _refresh_bids(self) -> None:
        """Let the dirty queues bid again, and the members of stale cohorts."""
        while self._dirty or self._stale_cohorts:
            for name in self._stale_cohorts:
                self._dirty.update(self._cohorts[name].queues)
            dirty, self._dirty, self._stale_cohorts = self._dirty, set(), set()
            for name in dirty:
                self._bid(self._queues[name])

    def _bid(self, queue: QueueState) -> None:
        spec = queue.spec
        eligible = queue.eligible = queue.find_eligible(self._allows, scarce=self._scarce)
        with_first = self._scarce and queue.contends_with_first
        reservable = with_first and (queue.is_liable or queue.can_reserve(eligible[0].demand))
        if reservable != queue.reservable:
            queue.reservable, queue.bid_demand = reservable, None
        alone = not self._scarce or (with_first and len(eligible) == 1)
        if not eligible:
            queue.bid_demand = None
            self._fair_share.bid(spec.name, None)
        elif (
            not alone
            or eligible[0].demand is not queue.bid_demand
            or eligible[0].waiting.gang is not queue.bid_gang
            or eligible[0].waiting.most
        ):
            cost = self.pool.prices.of(queue_state.paid_demand(self._further.job_of_bid(queue)))
            self._fair_share.bid(spec.name, Bid(spec.weight, cost, self.pool.group(queue)))
            # Payments have one demand, nothing, but costs of their own: each bids anew.
            queue.bid_demand = (eligible[0].demand or None) if alone else None
            queue.bid_gang = eligible[0].waiting.gang
        if queue.unread and queue.is_low:
            self._unread.note(queue)
        if self._scarce and queue.overtaken is not None:
            self.reservation.consider(queue, self._now)

    def _allows(self, queue: QueueState, demand: Amounts) -> bool:
        """Return whether quota and cohort allow a demand. The first one that makes a cohort scarce concerns all its
        members."""
        cohort = self._cohorts.get(queue.spec.cohort)
        roomy = cohort is not None and cohort.roomy
        allows = not quotas.obstacle(queue, demand, cohort)
        if cohort is not None and roomy != cohort.roomy:
            self._stale_cohorts.add(queue.spec.cohort)
        return allows

    # The pool's reservation (`queues.picking.kept_room`)

    def _reserve(self, *, bind: bool = False) -> None:
        """Reserve room in a scarce pool for the job that is due for it; with `bind`, its queue pays from now on."""
        self.reservation.patience = self.patience.pool
        holder = self.reservation.choose(self._now)
        if self._scarce:
            self.pool.reserve(holder, self._now, self.patience.pool)
            for group in list(self._fair_share.groups_without_room):
                self._fair_share.set_state(group, "open")
            self._dirty |= self._further.outdated()
        if bind and self.reservation.bind(self._now):
            self._backfill.begin_reservation()
            self._dirty.update(self.reservation.liable)
            self._refresh_bids()
