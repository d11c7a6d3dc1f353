"""Why a job waits.

One rule: pure, and decided by the very race that makes the picks. The sentence has no moving numbers, so that it can be
written down once; the numbers are for whoever asks now.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from crds.resources import amounts, quantities
from crds.resources.amounts import NOTHING, Amounts
from queues.picking import quotas
from queues.picking.picker import Race
from queues.picking.queue_state import Lane
from queues.values import Place

Code = Literal[
    "QueueNotFound",
    "ExceedsQuota",
    "QueueHeld",
    "BehindOthers",
    "WaitingForQuota",
    "WaitingForCohort",
    "WaitingForPool",
    "Next",
]
"""Why a job waits, in the order in which it is asked; "Next" waits only for its queue's turn."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """A reason to wait."""

    code: Code
    sentence: str
    """For the status: true until the code changes."""
    numbers: str
    """For whoever asks: what is needed, what there is, and how many are ahead, at this moment."""


def why(race: Race, place: Place, now: float) -> Explanation:
    """Return why the job at a place waits. The picker must know all changes, and stays as it is."""
    lane = race.lane(place.entry.queue, now)
    code, sentence = _reason(race, lane, place)
    limits = "" if lane is None else _limits(race, lane, place.entry.demand)
    needs = f"needs {_listed(place.entry.demand)}"
    ahead = f"{place.rank} job{'' if place.rank == 1 else 's'} ahead in queue {place.entry.queue}"
    return Explanation(code, sentence, "; ".join(part for part in (needs, limits, ahead) if part))


def too_large(queue: str, demand: Amounts, ceiling: Amounts) -> str:
    """What is said of a job that asks for more than the ceiling."""
    names = _named(name for name, asked in demand.items() if not amounts.fits({name: asked}, NOTHING, ceiling))
    return f"the job asks for more {names} than queue {queue} or the pool can ever give: torchq job why says how much"


def _reason(race: Race, lane: Lane | None, place: Place) -> tuple[Code, str]:
    queue, demand = place.entry.queue, place.entry.demand
    if lane is None:
        return "QueueNotFound", f"queue {queue} does not exist"
    # A queue that goes on would not help a job that is larger than its quota; the pool may have room by then.
    quota = quotas.ceiling(lane.spec, race.cohort(lane.spec.cohort), NOTHING)
    for ceiling in (quota, lane.ceiling) if lane.spec.open else (quota,):
        if not amounts.fits(demand, NOTHING, ceiling):
            return "ExceedsQuota", too_large(queue, demand, ceiling)
    if not lane.spec.open:
        return "QueueHeld", f"queue {queue} is on hold"
    return _blocked(race, lane, place) if _asked(race, lane, place) else _behind(queue)


def _blocked(race: Race, lane: Lane, place: Place) -> tuple[Code, str]:
    queue, demand = lane.spec.name, place.entry.demand
    cohort = race.cohort(lane.spec.cohort)
    match quotas.obstacle(lane, demand, cohort):
        case "quota":
            return "WaitingForQuota", f"queue {queue} has no quota left for the job"
        case "cohort":
            return "WaitingForCohort", f"cohort {lane.spec.cohort} has nothing left to lend to queue {queue}"
    if not race.pool.fits_reserved(demand):
        return "WaitingForPool", "the pool has no room for the job"
    if race.holder != lane.spec.name and not race.pool.fits(demand):
        return "WaitingForPool", "the pool's room is kept for a job that was overtaken before"
    return "Next", f"the job goes with queue {queue}'s next turn"


def _asked(race: Race, lane: Lane, place: Place) -> bool:
    """Whether the job may go at its queue's turn if there is room."""
    key = place.entry.key
    if lane.first is None or lane.first.waiting.entry.key == key:
        return True
    return race.passes(lane) and any(each.waiting.entry.key == key for each in lane.distinct())


def _behind(queue: str) -> tuple[Code, str]:
    return "BehindOthers", f"other jobs of queue {queue} go before"


def _limits(race: Race, lane: Lane, demand: Amounts) -> str:
    """What is free of what the job needs, wherever it is limited."""
    parts = [_free(f"queue {lane.spec.name}", demand, lane.used, lane.spec.quota)]
    cohort = race.cohort(lane.spec.cohort)
    if cohort is not None:
        limited = {name: amount for name, amount in cohort.total.items() if name in lane.spec.quota}
        parts.append(_free(f"cohort {lane.spec.cohort}", demand, cohort.used, limited))
    parts.append(_free("the pool", demand, race.pool.used, race.pool.capacity))
    return "; ".join(part for part in parts if part)


def _free(where: str, demand: Amounts, used: Amounts, limits: Amounts) -> str:
    free = [
        f"{quantities.text(name, max(0, most - used.get(name, 0)))} of {quantities.text(name, most)} {name}"
        for name, asked in sorted(demand.items())
        if asked > 0 and (most := amounts.most(limits, name)) is not None
    ]
    return f"{where}: {', '.join(free)} free" if free else ""


def _listed(demand: Amounts) -> str:
    """What it asks for, without the place that every job takes."""
    shown = {name: amount for name, amount in sorted(demand.items()) if amount and name != amounts.JOBS}
    return ", ".join(f"{quantities.text(name, amount)} {name}" for name, amount in shown.items()) or "1 job"


def _named(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))
