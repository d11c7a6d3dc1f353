"""Who goes next, over all queues.

One rule: pure. The same snapshot gives the same picks, whether they are made in one batch or in many.

A queue contends if it is open, not empty and its next job fits its quota. Its turn comes by `queues.credits`. If the
pool has no room for the job whose turn it is, the queue keeps its turn (and keeps gaining) while others go first; when
its patience ends, the job holds the pool's one reservation: nothing is admitted into the room it needs until it runs or
leaves. Without this a stream of small jobs would starve a large one for ever.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from crds import amounts
from crds.amounts import NOTHING, Amounts
from queues import lanes
from queues.credits import Ledger
from queues.lanes import Lane, Patience
from queues.values import Batch, Pick, Snapshot

PATIENCE = Patience()


def choose(snapshot: Snapshot, now: float, limit: int, cost: str, patience: Patience = PATIENCE) -> Batch:
    """At most `limit` picks, best first; fewer if no more fit, or if a queue's next job is not in the snapshot.

    `cost` is "jobs" (every pick costs 1) or the canonical name of the resource that the weights divide; `now` is in
    seconds since 1970.
    """
    race = _start(snapshot, cost)
    picks: list[Pick] = []
    while len(picks) < limit and (turn := _next_turn(race, now, patience)):
        picks.append(_take(race, turn, now))
        if turn.lane.ran_out:
            break
        race.ledger.follow(turn.lane.name, turn.lane.bid)
    return Batch(epoch=snapshot.epoch, revision=snapshot.revision, picks=tuple(picks))


def blind(snapshot: Snapshot) -> bool:
    """Whether a queue shows only jobs that can never run while others wait behind them: then it takes no part in
    `choose`, though it should."""
    pool = NOTHING if snapshot.pool is None else snapshot.pool
    return any(
        view.waiting > len(view.heads) and not lanes.build(view, pool, "").candidates
        for view in snapshot.queues
        if view.spec.open
    )


@dataclass(slots=True)
class _Race:
    """The working copy of a snapshot."""

    lanes: Mapping[str, Lane]
    ledger: Ledger
    pool: Amounts
    used: Amounts
    delayed: set[str]
    """The queues of which a job was overtaken."""


@dataclass(frozen=True, slots=True)
class _Turn:
    """Who goes next, and whose turn it was before but for want of room."""

    lane: Lane
    overtaken: list[Lane]


def _start(snapshot: Snapshot, cost: str) -> _Race:
    pool = NOTHING if snapshot.pool is None else snapshot.pool
    queues = {view.spec.name: lanes.build(view, pool, cost) for view in snapshot.queues}
    accounts = {view.spec.name: view.account for view in snapshot.queues}
    bids = {name: bid for name, lane in queues.items() if (bid := lane.bid)}
    delayed = {name for name, lane in queues.items() if lane.overtaken}
    return _Race(queues, Ledger(snapshot.clock, accounts, bids), pool, snapshot.pool_usage, delayed)


def _next_turn(race: _Race, now: float, patience: Patience) -> _Turn | None:
    """The first queue in the order of turns whose next job fits the pool, beside the job that holds a reservation."""
    holder = _holder(race, now, patience)
    beside = race.used if holder is None else amounts.add(race.used, holder.demand)
    overtaken: list[Lane] = []
    for name in race.ledger.turn_order():
        lane = race.lanes[name]
        if amounts.fits(lane.demand, race.used if lane is holder else beside, race.pool):
            return _Turn(lane, overtaken)
        overtaken.append(lane)
    return None


def _holder(race: _Race, now: float, patience: Patience) -> Lane | None:
    """Whose next job holds the pool's reservation: of those whose patience has ended, who was overtaken first."""
    since = {name: race.lanes[name].waits_since(now, patience) for name in race.delayed}
    waiting = [(start, name) for name, start in since.items() if start is not None]
    return race.lanes[min(waiting)[1]] if waiting else None


def _take(race: _Race, turn: _Turn, now: float) -> Pick:
    """The pick, with what it changes; the working copy moves on."""
    lane, waiting, demand = turn.lane, turn.lane.head, turn.lane.demand
    overtaken = {other.name: other.overtake(now) for other in turn.overtaken}
    race.ledger.pay(lane.name)
    race.delayed.update(overtaken)
    race.used = amounts.add(race.used, demand)
    lane.advance()
    return Pick(
        waiting=waiting,
        cost=lanes.price(demand, lane.cost),
        clock=race.ledger.clock,
        accounts=race.ledger.changes(),
        overtaken=overtaken,
    )
