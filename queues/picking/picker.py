"""Who goes next, over all queues: the working copy of the queues, kept from one round of picks to the next.

One rule: pure. What is picked depends on what the store showed and on `now`; a race that was told every difference
picks what one that begins anew would pick.

A queue contends if it is open and has a job that its quota and cohort let go now. Its turn comes by its lag
(`queues.picking.fair_share`). If the pool has no room for the first job of the queue whose turn it is, the
queue keeps its turn while others go first, and each time that is counted, for this one queue. When its patience ends
the job holds the pool's one reservation: nothing is admitted into the room it needs until it runs or leaves. Without
this a stream of small jobs would starve a large one for ever. So from the moment it is the first whose turn it is, a
job is overtaken at most `patience.times` times (and for at most `patience.seconds`) before room is kept for it, unless
it is kept for one that was overtaken earlier. A queue pays for kept room whether the job starts or is withdrawn
(`queues.picking.kept_room`). The room is lent to jobs that end before it is needed (`queues.picking.backfill`).

Inside a queue, jobs that fit may pass a first one that does not (unless the queue is StrictFIFO): the first of each
distinct demand, in order. That is counted, too, and after `queue_bypasses` nothing passes it any more, so that its
queue's jobs end and make room.
"""

from collections.abc import Callable, Iterable, Mapping

from crds.resources.amounts import NOTHING, Amounts
from queues.picking import queue_state, quotas
from queues.picking.backfill import Backfill, Forecast, Shadows
from queues.picking.fair_share import Ledger, Turn
from queues.picking.kept_room import KeptRoom, Records
from queues.picking.lines import Bid
from queues.picking.pool import Pool
from queues.picking.queue_state import Candidate, Lane
from queues.picking.quotas import Cohort
from queues.rules import Rules
from queues.values import NOBODY, Batch, Behind, Pick, QueueSpec, QueueView, Snapshot

Chosen = tuple[Lane, Candidate, Turn]
"""Whose turn it is, with which of its jobs, and where it stands in the order."""


class Race:
    """The queues as they will be once every pick stands."""

    def __init__(self, snapshot: Snapshot, rules: Rules, shadows: Shadows | None = None) -> None:
        """Begin with a whole snapshot. `shadows` is kept from one race to the next."""
        self._rules = rules
        self._shadows = Shadows() if shadows is None else shadows
        self._now = 0.0
        self._dirty: set[str] = set()
        self._stirred: set[str] = set()
        """Cohorts of which all members must be looked at again."""
        self._shown_of: set[str] = set()
        """Cohorts of which members were shown."""
        self._begin(snapshot)

    @property
    def hungry(self) -> Mapping[str, int]:
        """Queues of which few jobs are known any more, or none that can ever run, though more wait; and how many are
        known."""
        self._look()
        return {name: self._lanes[name].left for name in self._hungry}

    def ask(self, most: int) -> Mapping[str, int]:
        """The same, of queues of which fewer than `most` are known. They count as asked for until they are learnt."""
        self._look()
        asked = {name: left for name in self._hungry if (left := self._lanes[name].left) < most}
        for name, left in asked.items():
            self._lanes[name].asked = left
            self._hungry.discard(name)
        return asked

    def learn(self, asked: Iterable[str], shown: Mapping[str, Behind]) -> None:
        """What has come of that: what was not shown has to be asked for again. What is shown was so after the picks
        that were made before it was asked for."""
        for name in asked:
            lane, view = self._lanes[name], shown.get(name)
            if view is not None:
                lane.learn(view)
            lane.asked = None
            self._anew(lane)
            cohort = self._cohorts.get(lane.spec.cohort)
            if cohort is not None and cohort.lead_anew():
                self._stirred.add(lane.spec.cohort)

    @property
    def starved(self) -> bool:
        """Whether more jobs of a queue must be shown before anybody can be picked, or before it can take part."""
        self._look()
        return bool(self._dry or self._blind)

    @property
    def blind(self) -> bool:
        """Whether a queue is known only by jobs that can never run while others wait behind them: then it takes no part
        though it should, and more of its jobs must be shown."""
        self._look()
        return bool(self._blind)

    def stuck(self, most: int) -> Mapping[str, int]:
        """Queues of which fewer than `most` jobs are known, and none of these can go now, though more wait behind that
        may go before them; and how many are known."""
        self._look()
        self._reserve()
        self._shallow.difference_update([name for name in self._shallow if self._lanes[name].left >= most])
        return {name: self._lanes[name].left for name in self._shallow if self._is_stuck(self._lanes[name])}

    def _is_stuck(self, lane: Lane) -> bool:
        if not lane.left or not (lane.first is None or self.passes(lane)):
            return False
        return not (self.pool.first_fitting(lane) if self._scarce else lane.offers)

    # What a reason is made of

    def lane(self, name: str, now: float) -> Lane | None:
        """A queue as it stands; None if there is none of that name."""
        self._now = now
        self._look()
        self._reserve()
        return self._lanes.get(name)

    def cohort(self, name: str) -> Cohort | None:
        """A cohort as it stands."""
        return self._cohorts.get(name)

    @property
    def holder(self) -> str:
        """The queue whose first job holds the pool's reservation; empty if none does."""
        return "" if self._kept.holder is None else self._kept.holder.spec.name

    def passes(self, lane: Lane) -> bool:
        """Whether a queue's jobs may pass its first one."""
        return lane.lets_pass(self._rules.queue_bypasses)

    # The pick

    def foresee(self, now: float, forecast: Callable[[], Forecast | None]) -> None:
        """If room is kept for a job, ask what is known about when jobs end, for the picks until the next time."""
        self._now = now
        self._look()
        self._backfill.remember()
        self._reserve()
        self._backfill.forecast = forecast() if self._kept.holder is not None else None

    def picks(self, now: float, limit: int) -> Batch:
        """At most `limit` picks, best first; fewer if no more fit, or if a queue's next job is not known.

        `now` is in seconds since 1970.
        """
        self._now = now
        self._look()
        if self._kept.bound:
            self._dirty.update(self._kept.collect(self._ledger, self._rules.cost))
            self._bid_anew()
        self._reserve(bind=True)
        self._backfill.begin(now)
        picks: list[Pick] = []
        while len(picks) < limit and (chosen := self._next()):
            picks.append(self._take(*chosen))
        epoch, revision, change = self._shown.epoch, self._shown.revision, self._shown.change
        settlement = self._kept.settlement(self._ledger) if self._kept.unsaved else None
        return Batch(epoch=epoch, revision=revision, picks=tuple(picks), settlement=settlement, change=change)

    def _next(self) -> Chosen | None:
        """The first queue in the order of turns that has a job for which there is room."""
        if self._dirty or self._stirred:
            self._bid_anew()
        if self._kept.outdated:
            self._reserve(bind=True)
        if self._dry or (self._scarce and self.pool.exhausted()) or not (chosen := self._choose()):
            return None
        if self._ledger.unsettled:
            self._ledger.settle()
            return self._choose()
        return chosen

    def _choose(self) -> Chosen | None:
        """The same; where nothing can go beside the reservation, a job that its room is lent to."""
        chosen = self._first_with_room()
        while chosen is None and (lent := self._backfill.next(self.passes, self._lets)):
            chosen = None if self._costs_more(lent[0], lent[1]) else lent
        return chosen

    def _first_with_room(self) -> Chosen | None:
        chosen = None
        while chosen is None and (turn := self._ledger.first("open")):
            lane = self._lanes[turn[-1]]
            candidate = self.pool.first_fitting(lane) if self._scarce else lane.offers[0]
            if candidate is None:
                self._ledger.move(self.pool.group(lane), "waiting" if lane.claims else "aside")
            elif candidate is lane.offers[0] or not self._costs_more(lane, candidate):
                chosen = lane, candidate, turn
        held = self._reserved() if self._kept.holder is not None else None
        return held if held and (chosen is None or held[-1] <= chosen[-1]) else chosen

    def _costs_more(self, lane: Lane, candidate: Candidate) -> bool:
        """Whether a job costs more than the one with which its queue contends. Then the queue contends with this one,
        until the next pick: a turn that a small job won must not be a large one's."""
        name, cost = lane.spec.name, queue_state.price(candidate.demand, self._rules.cost)
        if cost <= self._ledger.cost(name):
            return False
        self._ledger.bid(name, Bid(lane.spec.weight, cost, self.pool.group(lane)))
        lane.asks = None
        self._dirty.add(name)
        return True

    def _reserved(self) -> Chosen | None:
        """The job that holds the reservation, if there is room for it by now."""
        lane = self._kept.holder
        if lane is None or lane.first is None or not self.pool.fits_reserved(lane.first.demand):
            return None
        return lane, lane.first, self._ledger.turn(lane.spec.name)

    def _take(self, lane: Lane, candidate: Candidate, turn: Turn) -> Pick:
        """The pick, with what it changes; the working copy moves on."""
        ledger, spec, demand = self._ledger, lane.spec, candidate.demand
        cost = queue_state.price(demand, self._rules.cost)
        overtaken = NOBODY
        if candidate is not lane.first or ledger.blocked:
            overtaken = self._overtake(lane, candidate, turn)
        if self._kept.unsaved or spec.name in self._kept.bound:
            overtaken = self._kept.with_pick(lane, candidate, overtaken)
        ledger.pay(spec.name, cost)
        pick = Pick._make((candidate.waiting, cost, ledger.clock, ledger.changes(), overtaken))
        lane.take(candidate)
        if self._scarce:
            self.pool.charge(demand)
        if spec.cohort:
            self._charge(self._cohorts[spec.cohort], spec, demand)
        self._bid(lane)
        return pick

    def _overtake(self, lane: Lane, candidate: Candidate, turn: Turn) -> Records:
        """Whose turn it was before but for want of room: the first one only, so that a pick's work does not grow with
        their number; and the queue's own first job, if it is passed."""
        blocked = self._ledger.first("waiting") if self._ledger.blocked else None
        passed = [self._lanes[blocked[-1]]] if blocked is not None and blocked < turn else []
        if lane.first is not None and candidate.at != lane.first.at:
            passed.append(lane)
        if not passed:
            return NOBODY
        self._dirty.update(each.spec.name for each in passed)
        return {each.spec.name: each.overtake(self._now) for each in passed}

    def _charge(self, cohort: Cohort, spec: QueueSpec, demand: Amounts) -> None:
        cohort.charge(spec, demand)
        if not cohort.roomy:
            self._stirred.add(spec.cohort)

    # Who contends

    def _bid_anew(self) -> None:
        """Look again at the queues of which something has changed, and at those that lend to them."""
        while self._dirty or self._stirred:
            for name in self._stirred:
                self._dirty.update(self._cohorts[name].lanes)
            dirty, self._dirty, self._stirred = self._dirty, set(), set()
            for name in dirty:
                self._bid(self._lanes[name])

    def _bid(self, lane: Lane) -> None:
        spec = lane.spec
        offers = lane.offers = lane.let_go(self._lets, self._rules.queue_bypasses, scarce=self._scarce)
        leads = self._scarce and lane.leads
        claims = leads and (lane.bound or lane.may_claim(offers[0].demand))
        if claims != lane.claims:
            lane.claims, lane.asks = claims, None
        alone = not self._scarce or (leads and len(offers) == 1)
        if not offers:
            lane.asks = None
            self._ledger.bid(spec.name, None)
        elif not alone or offers[0].demand is not lane.asks:
            cost = queue_state.price(offers[0].demand, self._rules.cost)
            self._ledger.bid(spec.name, Bid(spec.weight, cost, self.pool.group(lane)))
            lane.asks = offers[0].demand if alone else None
        if lane.beyond and lane.low:
            _put(self._hungry, spec.name, lane.asked is None)
            _put(self._dry, spec.name, lane.dry and spec.open)
            _put(self._blind, spec.name, lane.blind and spec.open)
        if self._scarce and lane.overtaken is not None:
            self._kept.consider(lane, self._now)

    def _lets(self, lane: Lane, demand: Amounts) -> bool:
        """Whether quota and cohort let it go. The first demand that makes a cohort scarce concerns all its members."""
        cohort = self._cohorts.get(lane.spec.cohort)
        roomy = cohort is not None and cohort.roomy
        lets = not quotas.obstacle(lane, demand, cohort)
        if cohort is not None and roomy != cohort.roomy:
            self._stirred.add(lane.spec.cohort)
        return lets

    # The pool's reservation (`queues.picking.kept_room`)

    def _reserve(self, *, bind: bool = False) -> None:
        """Where room is scarce, keep it for the job that holds the reservation; with `bind`, its queue owes for it."""
        demand = self._kept.choose(self._now)
        if self._scarce:
            self.pool.reserve(demand)
            for group in list(self._ledger.blocked):
                self._ledger.move(group, "open")
        if bind and self._kept.bind():
            self._backfill.keep()
            self._dirty.update(self._kept.bound)
            self._bid_anew()

    # What the store shows

    def update(self, snapshot: Snapshot) -> None:
        """What has changed since. A difference changes only the queues that it shows."""
        if snapshot.whole:
            self._begin(snapshot)
            return
        self._shown = snapshot
        self.pool.show(snapshot.pool_usage)
        for view in snapshot.queues:
            self._show(view)
        if self.pool.forget_groups(len(self._lanes)):
            self._dirty.update(self._lanes)
            for lane in self._lanes.values():
                lane.asks = None

    def settle(self, queue: str, cost: int) -> None:
        """A queue pays so much beside its picks; or, below 0, gets it back: a pick that was never granted."""
        self._kept.settle(self._ledger, queue, cost)

    def _begin(self, snapshot: Snapshot) -> None:
        """Take a whole snapshot as the truth."""
        self._shown = snapshot
        self.pool = Pool(NOTHING if snapshot.pool is None else snapshot.pool, snapshot.pool_usage)
        self._scarce = bool(self.pool.capacity)
        self._cohorts = quotas.cohorts((view.spec for view in snapshot.queues), self._rules.queue_bypasses)
        accounts = {**snapshot.departed, **{view.spec.name: view.account for view in snapshot.queues}}
        self._ledger = Ledger(snapshot.clock, accounts)
        self._lanes: dict[str, Lane] = {}
        self._kept = KeptRoom(self._lanes, self._rules.patience)
        self._backfill = Backfill(self._lanes, self._cohorts, self.pool, self._ledger, self._kept, self._shadows)
        self._dirty, self._stirred, self._shown_of = set(), set(), set()
        self._hungry: set[str] = set()
        self._dry: set[str] = set()
        self._blind: set[str] = set()
        self._shallow: set[str] = set()
        for view in snapshot.queues:
            self._show(view)

    def _show(self, view: QueueView) -> None:
        spec = view.spec
        cohort = self._cohorts.get(spec.cohort)
        if view.after:
            lane = self._lanes[spec.name]
            lane.learn(view)
        else:
            known = self._lanes.get(spec.name)  # a difference changes no settings, so its ceiling is the same
            ceiling = known.ceiling if known else quotas.ceiling(spec, cohort, self.pool.capacity)
            lane = self._lanes[spec.name] = Lane(view, ceiling)
        if cohort is not None:
            cohort.lanes[spec.name] = lane
            self._shown_of.add(spec.cohort)
        self._anew(lane)

    def _anew(self, lane: Lane) -> None:
        """Other jobs of a queue are known than before."""
        spec = lane.spec
        self._dirty.add(spec.name)
        for names in (self._hungry, self._dry, self._blind):
            names.discard(spec.name)
        self._kept.show(lane)
        _put(self._shallow, spec.name, lane.shallow)

    def _look(self) -> None:
        """Take in what was shown or picked since the last look."""
        for name in self._shown_of:
            cohort = self._cohorts[name]
            roomy = cohort.roomy
            cohort.count()
            if not (roomy and cohort.roomy):
                self._stirred.add(name)
        self._shown_of = set()
        self._bid_anew()


def _put(names: set[str], name: str, belongs: bool) -> None:
    (names.add if belongs else names.discard)(name)
