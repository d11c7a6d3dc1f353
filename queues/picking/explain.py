"""Why a job waits.

One rule: pure, and decided by the picker that makes the picks. The sentence has no numbers that change, so that it can
be written to a status once. The numbers are in a text of their own, which is valid at the moment of the query.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

from crds import timestamps
from crds.resources import amounts, quantities
from crds.resources.amounts import NOTHING, Amounts
from queues import order
from queues.picking import node_words, quotas
from queues.picking.picker import Picker
from queues.picking.queue_state import QueueState
from queues.placement.places import Places
from queues.rules import PickRules
from queues.values import Entry, QueuePosition, QueueSnapshot, QueueSpec, Snapshot, WaitingEntry

Code = Literal[
    "New",
    "ExceedsQuota",
    "QueueHeld",
    "BehindOthers",
    "WaitingForQuota",
    "WaitingForCohort",
    "WaitingForPool",
    "WaitingForNodes",
    "Next",
]
"""Why a job waits, in the order of the checks. A job with "Next" waits only for its queue's turn."""


@dataclass(frozen=True, slots=True)
class ScarceRoom:
    """The room of a queue, a cohort or the pool, of which a job finds too little."""

    queues: frozenset[str]
    """The queues whose jobs hold it; empty: all."""
    short: tuple[str, ...]
    """The resources of which too little is free."""

    def sizes(self, queue: str, charge: Amounts) -> tuple[int, ...]:
        """Return how much of it a charge of a queue holds, by resource; empty if that is nothing."""
        held = tuple(charge.get(name, 0) for name in self.short) if not self.queues or queue in self.queues else ()
        return held if any(held) else ()


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a job waits, as a code, a sentence and numbers."""

    code: Code
    sentence: str
    """A sentence for the status. It stays true until the code changes."""
    numbers: str
    """What the job needs, what is free, and how many jobs are ahead, at the moment of the query."""
    room: ScarceRoom | None = None
    """The room that the job waits for; None if it waits for something else."""


def explain(picker: Picker, place: QueuePosition, now: float) -> Explanation:
    """Return why the job at a place waits. The picker must know all changes, and is not changed.

    `now` is in seconds since 1970.
    """
    queue = picker.queue(place.entry.queue, now)
    code, sentence = _reason(picker, queue, place)
    limits = "" if queue is None else _format_limits(picker, queue, place.entry.demand)
    needs = _format_needs(place.entry)
    ahead = f"{place.rank} job{'' if place.rank == 1 else 's'} ahead in queue {place.entry.queue}"
    room = None if queue is None else _room(picker, queue, code, place.entry)
    shares = (
        _format_shares(picker, queue, room, place.entry.demand)
        if queue is not None and code == "WaitingForCohort" and room
        else ""
    )
    nodes = node_words.describe(picker.pool.places, place.entry) if code == "WaitingForNodes" else ""
    passed = "" if queue is None else _format_passed(picker, queue, place, now)
    parts = (needs, limits, nodes, shares, passed, ahead)
    return Explanation(code, sentence, "; ".join(part for part in parts if part), room)


def _format_passed(picker: Picker, queue: QueueState, place: QueuePosition, now: float) -> str:
    """Return how many jobs have passed the first one of a queue, whether others may still, and whether room was kept
    or collected for it."""
    record, cohort = queue.first_overtaken, picker.cohort(queue.spec.cohort)
    if record is None or record.key != place.entry.key:
        return ""
    if not record.times:
        parts = []
    elif cohort is not None and quotas.has_to_borrow(queue):  # loans that pass it are not counted
        parts = [f"others have passed it for {max(0.0, now - record.since):.0f} s"]
    else:
        parts = [f"passed by {record.times} job{'' if record.times == 1 else 's'}"]
    if parts and record.kept is not None:
        since = f" since {timestamps.format_time(record.kept_since)}" if record.kept_since else ""
        parts.append(f"room is kept for it{since}: no other job takes it any more, and its queue pays for the time")
    elif parts and record.late:
        parts.append("no job of its queue that takes its room passes it any more")
    if record.kept is None and record.vain:
        ahead = -picker.behind(queue.spec.name) / picker.pool.prices.of(place.entry.demand)
        until = f", which has paid for it and is ahead by {ahead:.1f} such jobs" if ahead > 0 else ""
        parts.append(f"room was kept for it in vain: it is again at the next turn of queue {queue.spec.name}{until}")
    if queue.collects:
        rest = max(0.0, record.collected_until - now)
        parts.append(f"cohort {queue.spec.cohort} lends nothing of what it asks for to others, for {rest:.0f} s more")
    elif record.uncollected:
        times = f"{record.uncollected} time{'' if record.uncollected == 1 else 's'}"
        parts.append(f"room was collected for its queue {times} in vain: the pause before the next time doubles")
    return "; ".join(parts)


def _room(picker: Picker, queue: QueueState, code: Code, entry: Entry) -> ScarceRoom | None:
    """Return the room that a job waits for, by the code of the reason; None where no end of a job would help."""
    demand, cohort, places = entry.demand, picker.cohort(queue.spec.cohort), picker.pool.places
    match code:
        case "WaitingForNodes" if places is not None and not places.could_hold(node_words.gang_of(places, entry)):
            return None
        case "WaitingForQuota":
            queues, used, limits = frozenset({queue.spec.name}), queue.used, queue.spec.quota
        case "WaitingForCohort" if cohort is not None:
            queues, used, limits = frozenset(cohort.queues), cohort.used, cohort.total
        case "WaitingForPool" | "WaitingForNodes":
            queues, used, limits = frozenset(), picker.pool.used, picker.pool.capacity
        case _:
            return None
    short = [name for name, amount in sorted(demand.items()) if not amounts.fits({name: amount}, used, limits)]
    # What is free may be kept for others. Then the holders of all that the job asks for have its room.
    limited = [
        name for name, amount in sorted(demand.items()) if amount and amounts.limit_for(limits, name) is not None
    ]
    return ScarceRoom(queues, tuple(short or limited))


def _format_shares(picker: Picker, queue: QueueState, room: ScarceRoom, demand: Amounts) -> str:
    """Return what the own jobs of a queue use of its quota, what members of its cohort use beyond theirs, and whether
    others have a claim to what is free. The members are not named: the owner of the job may not know their teams."""
    cohort = picker.cohort(queue.spec.cohort)
    assert cohort is not None
    own = [_format_use(queue, name) for name in room.short if name in queue.spec.quota]
    above = [
        f"another queue {_format_use(member, name)}"
        for _, member in sorted(cohort.queues.items())
        for name in room.short
        if member is not queue and member.used.get(name, 0) > member.spec.quota.get(name, member.used.get(name, 0))
    ]
    beyond = f"beyond their quotas: {', '.join(above)}" if above else "no other member is beyond its quota"
    claimed = "; what is free is kept for members that lend it"
    if any(member.collects for member in cohort.queues.values() if member is not queue):
        claimed = "; what is free is collected for the first job of another queue, which waits longer to borrow"
    is_free = amounts.fits(demand, cohort.used, cohort.total)
    return f"own jobs use {', '.join(own)}; {beyond}{claimed if is_free else ''}"


def _format_use(queue: QueueState, name: str) -> str:
    used, quota = (quantities.format_amount(name, each.get(name, 0)) for each in (queue.used, queue.spec.quota))
    return f"{used} of {quota} {name}"


def too_large_message(queue: str, demand: Amounts, ceiling: Amounts) -> str:
    """Return the sentence about a job that asks for more than its queue's ceiling."""
    names = _join(name for name, amount in demand.items() if not amounts.fits({name: amount}, NOTHING, ceiling))
    return f"the job asks for more {names} than queue {queue} or the pool can ever give: torchq job why says how much"


def _reason(picker: Picker, queue: QueueState | None, place: QueuePosition) -> tuple[Code, str]:
    name, demand = place.entry.queue, place.entry.demand
    if queue is None:
        # A job is put into the order only if its queue exists or is implied, so its queue comes with the next round.
        return "New", f"queue {name} is being set up"
    # To open a closed queue would not help a job that is larger than its quota. The pool may have room by then.
    quota = quotas.ceiling(queue.spec, picker.cohort(queue.spec.cohort), NOTHING)
    for ceiling in (quota, queue.ceiling) if queue.spec.open else (quota,):
        if not amounts.fits(demand, NOTHING, ceiling):
            return "ExceedsQuota", too_large_message(name, demand, ceiling)
    places, gang = picker.pool.places, node_words.gang_of(picker.pool.places, place.entry)
    if places is not None and not places.could_hold(gang):
        return "WaitingForNodes", node_words.never_held(gang)
    if not queue.spec.open:
        return "QueueHeld", f"queue {name} is on hold"
    return _limit(picker, queue, place) if _is_due(queue, place) else _behind(name)


def _limit(picker: Picker, queue: QueueState, place: QueuePosition) -> tuple[Code, str]:
    """Return which limit the first job of a queue waits for."""
    name, demand = queue.spec.name, place.entry.demand
    cohort = picker.cohort(queue.spec.cohort)
    match quotas.obstacle(queue, demand, cohort):
        case "quota":
            return "WaitingForQuota", f"queue {name} has no quota left for the job"
        case "cohort":
            return "WaitingForCohort", f"cohort {queue.spec.cohort} has nothing left to lend to queue {name}"
    if not picker.pool.fits_reserved(demand):
        return "WaitingForPool", "the pool has no room for the job"
    places, gang = picker.pool.places, node_words.gang_of(picker.pool.places, place.entry)
    if places is not None and not places.fits(gang, on_kept=True):
        return "WaitingForNodes", node_words.held_nowhere(gang)
    if picker.reservation_holder != name and not picker.pool.fits(demand):
        return "WaitingForPool", "the pool's room is reserved for a job that was overtaken before"
    if picker.reservation_holder != name and places is not None and not places.fits(gang):
        return "WaitingForNodes", "nodes are kept for a job that was overtaken before"
    return "Next", f"the job goes with queue {name}'s next turn"


def _is_due(queue: QueueState, place: QueuePosition) -> bool:
    """Return whether the job may go at its queue's turn if there is room."""
    key = place.entry.key
    if queue.first is None or queue.first.waiting.entry.key == key:
        return True
    # A first job with an open claim lets only those pass that leave what it needs.
    jobs = queue.eligible if queue.is_claimed else queue.distinct()
    return not queue.spec.strict and any(job.waiting.entry.key == key for job in jobs)


def _behind(name: str) -> tuple[Code, str]:
    return "BehindOthers", f"other jobs of queue {name} go before"


def _format_limits(picker: Picker, queue: QueueState, demand: Amounts) -> str:
    """Return what is free of the job's demand, in each place that limits it."""
    parts = [_format_free(f"queue {queue.spec.name}", demand, queue.used, queue.spec.quota)]
    cohort = picker.cohort(queue.spec.cohort)
    if cohort is not None:
        limited = {name: amount for name, amount in cohort.total.items() if name in queue.spec.quota}
        parts.append(_format_free(f"cohort {queue.spec.cohort}", demand, cohort.used, limited))
    parts.append(_format_free("the pool", demand, picker.pool.used, picker.pool.capacity))
    return "; ".join(part for part in parts if part)


def _format_free(place: str, demand: Amounts, used: Amounts, limits: Amounts) -> str:
    free = [
        _format_room(name, limit - used.get(name, 0), limit)
        for name, amount in sorted(demand.items())
        if amount > 0 and (limit := amounts.limit_for(limits, name)) is not None
    ]
    return f"{place}: {', '.join(free)} free" if free else ""


def _format_room(name: str, free: int, limit: int) -> str:
    return f"{quantities.format_amount(name, max(0, free))} of {quantities.format_amount(name, limit)} {name}"


def _format_needs(entry: Entry) -> str:
    if entry.idle:
        return f"needs no room: its queue pays for {entry.idle} worker{'' if entry.idle == 1 else 's'} that run already"
    return f"needs {'at least ' if entry.most else ''}{_format_demand(entry.demand)}"


def _format_demand(demand: Amounts) -> str:
    """Return a demand as text. The 1 job that every demand includes is left out."""
    limited = {name: amount for name, amount in sorted(demand.items()) if amount and name != amounts.JOBS}
    return ", ".join(f"{quantities.format_amount(name, amount)} {name}" for name, amount in limited.items()) or "1 job"


def _join(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))


def suppose(
    snapshot: Snapshot, entry: Entry, rules: PickRules, now: float, places: Places | None = None
) -> Explanation:
    """Return why a job that is in no queue's order would wait if it took its place now; "Next" if it would fit.

    Where the snapshot shows only the first jobs of the queue, the jobs behind them count as no obstacle.
    """
    others = [view for view in snapshot.queues if view.spec.name != entry.queue]
    queue = next((view for view in snapshot.queues if view.spec.name == entry.queue), None)
    queue = queue or QueueSnapshot(spec=QueueSpec(name=entry.queue), usage=NOTHING, waiting=0, heads=())
    position = order.place(entry, queue.spec.aging_seconds)
    rank = sum(order.place(head.entry, queue.spec.aging_seconds) < position for head in queue.heads)
    heads = (*queue.heads[:rank], WaitingEntry(entry, 0), *queue.heads[rank:])
    joined = replace(queue, heads=heads, waiting=queue.waiting + 1)
    queues = sorted((*others, joined), key=lambda view: view.spec.name)
    place = QueuePosition(entry=entry, rank=rank, waiting=joined.waiting)
    return explain(Picker(replace(snapshot, queues=tuple(queues)), rules, places=places), place, now)
