"""Why a job waits.

One rule: pure, and decided by the picker that makes the picks. The sentence has no numbers that change, so that it can
be written to a status once. The numbers are in a text of their own, which is valid at the moment of the query.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from crds.resources import amounts, quantities
from crds.resources.amounts import NOTHING, Amounts
from queues.picking import quotas
from queues.picking.picker import Picker
from queues.picking.queue_state import QueueState
from queues.values import Entry, QueuePosition

Code = Literal[
    "New",
    "ExceedsQuota",
    "QueueHeld",
    "BehindOthers",
    "WaitingForQuota",
    "WaitingForCohort",
    "WaitingForPool",
    "Next",
]
"""Why a job waits, in the order of the checks. A job with "Next" waits only for its queue's turn."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a job waits, as a code, a sentence and numbers."""

    code: Code
    sentence: str
    """A sentence for the status. It stays true until the code changes."""
    numbers: str
    """What the job needs, what is free, and how many jobs are ahead, at the moment of the query."""


def explain(picker: Picker, place: QueuePosition, now: float) -> Explanation:
    """Return why the job at a place waits. The picker must know all changes, and is not changed.

    `now` is in seconds since 1970.
    """
    queue = picker.queue(place.entry.queue, now)
    code, sentence = _reason(picker, queue, place)
    limits = "" if queue is None else _format_limits(picker, queue, place.entry.demand)
    needs = _format_needs(place.entry)
    ahead = f"{place.rank} job{'' if place.rank == 1 else 's'} ahead in queue {place.entry.queue}"
    return Explanation(code, sentence, "; ".join(part for part in (needs, limits, ahead) if part))


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
    if not queue.spec.open:
        return "QueueHeld", f"queue {name} is on hold"
    return _limit(picker, queue, place) if _is_due(picker, queue, place) else _behind(name)


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
    if picker.reservation_holder != name and not picker.pool.fits(demand):
        return "WaitingForPool", "the pool's room is reserved for a job that was overtaken before"
    return "Next", f"the job goes with queue {name}'s next turn"


def _is_due(picker: Picker, queue: QueueState, place: QueuePosition) -> bool:
    """Return whether the job may go at its queue's turn if there is room."""
    key = place.entry.key
    if queue.first is None or queue.first.waiting.entry.key == key:
        return True
    # A first job with an open claim lets only those pass that leave what it needs.
    jobs = queue.eligible if queue.is_claimed else queue.distinct()
    return picker.allows_passing(queue) and any(job.waiting.entry.key == key for job in jobs)


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
