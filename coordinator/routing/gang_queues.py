"""The room in the queues of a gang scheduler, such as Volcano's, for the jobs that name such a queue.

One rule: pure. Without this check, such a job would be admitted and its group never let in: its room in the pool would
stay idle. A job of whose queue nothing is known is not limited here.

The room that pods of others use is the amount that the scheduler reports as allocated, less the pods of jobs that have
a node. The amounts that torchq's jobs hold are added to this number. So the charges of jobs that were just picked count
before the scheduler has seen these jobs.

    hard   capability of the queue, or of a queue above it, less what is guaranteed to others there
    used   pods of others, and the charges of torchq's jobs, those of queues below included
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from coordinator.cache.routing_rules import GangRoom, RoutingRules
from coordinator.cache.views import JobView, PodView
from crds.resources import amounts
from crds.resources.amounts import NOTHING, Amounts
from crds.tenantqueue import TenantQueueSpec
from crds.torchjob import resource_quota
from crds.torchjob.resource_quota import Limit
from gang import backends
from gang.values import GangQueue

CODE = "WaitingForGangQueue"
"""The reason of a job that waits for room in a queue of the gang scheduler."""
MOST_LEVELS = 16
"""The most queues above a queue that are looked at."""
Taken = Mapping[str, Amounts]
"""By queue of the gang scheduler, the amounts that were taken since its room was computed."""


@dataclass(frozen=True, slots=True)
class Share:
    """The part that one job has of a queue of the gang scheduler."""

    queue: str
    charge: Amounts = field(default_factory=dict)
    """What is reserved for it."""
    bound: Amounts = field(default_factory=dict)
    """The requests of its pods that have a node, which the scheduler counts itself."""


def queue_of(job: JobView, rules: RoutingRules) -> str:
    """Return the queue of the gang scheduler in which a job's groups wait; empty if the job names no queue, or for the
    default queue.
    """
    scheduler = job.admission.gang_scheduler if job.admission is not None else job.gang_scheduler
    if backends.get_backend(scheduler or rules.gang_scheduler).queues is None:
        return ""
    queue = job.queue if job.admission is None else job.admission.queue
    return job.gang_queue or rules.queues.get(queue, TenantQueueSpec()).default_gang_queue


def share_of(job: JobView, pods: Iterable[PodView], rules: RoutingRules, charge: Amounts = NOTHING) -> Share | None:
    """Return the part of a gang scheduler's queue that a job holds; None if the job holds no part, or has no such
    queue. `charge` is the reserved amount, if the job's status does not have the amount yet.
    """
    queue = queue_of(job, rules)
    reserved = charge or (job.admission.charge if job.admission is not None else NOTHING)
    bound: dict[str, int] = {}
    for pod in pods if queue else ():
        if pod.occupies and pod.placed:
            amounts.increase(bound, pod.demand)
    return Share(queue, reserved, bound) if queue and (reserved or bound) else None


def rooms(queues: Mapping[str, GangQueue], shares: Iterable[Share]) -> dict[str, GangRoom]:
    """Return the room in each queue, given the amounts that jobs hold there."""
    charged: dict[str, dict[str, int]] = {}
    bound: dict[str, dict[str, int]] = {}
    for share in shares:
        for level in _levels(share.queue, queues):
            amounts.increase(charged.setdefault(level.name, {}), amounts.peak(share.charge, share.bound))
            amounts.increase(bound.setdefault(level.name, {}), share.bound)
    used = {
        name: amounts.add(
            _positive(amounts.subtract(queue.allocated, bound.get(name, NOTHING))), charged.get(name, NOTHING)
        )
        for name, queue in queues.items()
    }
    return {
        name: GangRoom(
            refusal=next((level.refusal for level in _levels(name, queues) if level.refusal), ""),
            limits=tuple(_limits(name, queues, used)),
        )
        for name in queues
    }


def _levels(name: str, queues: Mapping[str, GangQueue]) -> Iterator[GangQueue]:
    """Yield a queue and the queues above it."""
    seen = set[str]()
    while name in queues and name not in seen and len(seen) <= MOST_LEVELS:
        seen.add(name)
        yield queues[name]
        name = queues[name].parent


def _limits(name: str, queues: Mapping[str, GangQueue], used: Mapping[str, Amounts]) -> Iterator[tuple[str, Limit]]:
    """Yield the limits of a queue and of its parent queues, each with the name of its queue."""
    below = ""
    for level in _levels(name, queues):
        kept = _kept(level, below, queues, used) if below else NOTHING
        for resource, hard in level.capability.items():
            left = max(0, hard - kept.get(resource, 0))
            yield level.name, Limit(resource, left, used[level.name].get(resource, 0), resource)
        below = level.name


def _kept(parent: GangQueue, below: str, queues: Mapping[str, GangQueue], used: Mapping[str, Amounts]) -> Amounts:
    """Return the amounts that are guaranteed to other queues below a queue and not used by these queues."""
    others = [queue for queue in queues.values() if queue.parent == parent.name and queue.name != below]
    kept: dict[str, int] = {}
    for other in others:
        amounts.increase(kept, _positive(amounts.subtract(other.guarantee, used[other.name])))
    return kept


def _positive(found: Amounts) -> dict[str, int]:
    return {name: amount for name, amount in found.items() if amount > 0}


def needs(job: JobView, demand: Amounts) -> Amounts:
    """Return the least amounts that the gangs of a job need if the job is given `demand`. A gang whose minimum is
    smaller than the job may begin before there is room for the whole job.
    """
    if job.admission is not None or not job.beyond_gangs:
        return demand
    return _positive(amounts.subtract(demand, job.beyond_gangs))


def has_room(job: JobView, demand: Amounts, rules: RoutingRules, taken: Taken | None = None) -> bool:
    """Return whether the job's queue of the gang scheduler is open and has room for a demand, beside the amounts taken
    since. A queue of which nothing is known has room."""
    room, asked = _room(job, rules), needs(job, demand)
    if room is None:
        return True
    return not room.refusal and not any(_exceeded(room, asked, taken or {}))


def shortage(job: JobView, demand: Amounts, rules: RoutingRules) -> str:
    """Return why a job's groups would not be let in; empty if they would, or if that is not known.

    A job that was picked a moment ago has its room: it would lose its charge if its own room were in its way.
    """
    room = _room(job, rules) if demand and job.key not in rules.gang_holders else None
    if room is None:
        return ""
    if room.refusal:
        return room.refusal
    exceeded = list(_exceeded(room, needs(job, demand), {}))
    if not exceeded:
        return ""
    never = [each for each in exceeded if each[2] > each[1].hard]
    queue = (never or exceeded)[0][0]
    clauses = [resource_quota.describe(limit, asks) for level, limit, asks in never or exceeded if level == queue]
    verb = "can never hold" if never else "has no room for"
    return (
        f"queue {queue} of the gang scheduler {verb} the job's gang: {'; '.join(clauses[: resource_quota.MOST_NAMED])}"
    )


def levels_of(job: JobView, rules: RoutingRules) -> tuple[str, ...]:
    """Return the queues whose limits bind a job."""
    room = _room(job, rules)
    return () if room is None else tuple(dict.fromkeys(level for level, _ in room.limits))


def _room(job: JobView, rules: RoutingRules) -> GangRoom | None:
    name = queue_of(job, rules) if rules.gang_rooms is not None else ""
    if not name or rules.gang_rooms is None:
        return None
    if name in rules.gang_rooms:
        return rules.gang_rooms[name]
    _, refusal = backends.get_backend("volcano").refusal(name, None) or ("", "")
    return GangRoom(refusal)


def _exceeded(room: GangRoom, asked: Amounts, taken: Taken) -> Iterator[tuple[str, Limit, int]]:
    """Yield the limits without room, each with its queue and the requested amount."""
    for level, limit in room.limits:
        asks, used = asked.get(limit.name, 0), (limit.used or 0) + taken.get(level, NOTHING).get(limit.name, 0)
        if asks > 0 and used + asks > limit.hard:
            yield level, limit, asks
