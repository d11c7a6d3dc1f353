"""Where a job goes from here: a table over what the cluster says of it.

One rule: pure and level-triggered. The same state always gives the same route, so a missed event costs nothing.

    state                               entry     charge    a worker
    gone or deleting, pods occupy       -         keep      looks (deletes them)
    gone, pods occupy, queue drains     -         keep      looks (shortens their grace), and again soon
    gone or deleting, no pod occupies   forget    free      looks, unless gone
    finished, pods occupy               -         keep      looks (cleans up)
    finished, no pod occupies           forget    free      looks (cleans up)
    finished, and nothing is left       forget    free      -
    suspended, admitted or occupied     -         keep      looks (takes the pods away)
    suspended, otherwise                forget    free      looks (writes Suspended)
    invalid, pods occupy                -         keep      looks (writes Failed, takes the pods away)
    invalid, no pod occupies            forget    free      looks (writes Failed)
    admitted                            -         keep      looks
    admitted, its queue drains          -         keep      looks (takes the pods away), and again soon
    waiting, out of order (standing)    forget    free      looks in a second (writes Queued), unless written
    waiting                             put       -         looks in a second (writes Queued), unless written
    waiting, sent back                  put       free old  looks in a second (writes Queued), unless written
    waiting, its queue drains           put       free      looks in a second (writes Queued), unless written
    waiting, edited since its pick      put       free old  looks in a second (writes Queued), unless written

A look that only writes the status of a job that holds nothing (Queued, Suspended, Failed where it is invalid) waits for
its tenant's turn (`coordinator.leader.queued_limiter`).

What was charged for an attempt that is over is free once the job waits again; a newer attempt is a pick that a worker
has yet to write.
"""

from dataclasses import dataclass, replace

from coordinator.cache.routing_rules import Rules
from coordinator.cache.views import JobPods, JobView
from coordinator.routing import eligibility
from coordinator.routing.eligibility import Standing
from crds.keys import JobKey
from crds.tenantqueue import TenantQueueSpec
from queues import order
from queues.values import Entry, Offer, Reservation

DRAINING_SECONDS = 5.0
"""How soon to look again at an admitted job whose queue drains: the worker may not have heard of that yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """What to do about one key: at most one of put and remove, and perhaps an offer."""

    put: Entry | None = None
    remove: bool = False
    offer: Offer | None = None
    in_turn: bool = False
    """Whether the offer is made when its tenant's turn comes: the job holds nothing, and only its status is written."""
    charged: int = 0
    """The attempt it was admitted with just now, which the store must have charged; 0: none."""
    over: int = 0
    """Free what is charged for this attempt or an earlier one, before anything is put."""
    again: float = 0.0
    """When time alone changes the route, in seconds since 1970; 0: never."""
    told: Standing | None = None
    """What the job's status should say at once about its waiting; None: what it says may stay."""


def route(key: JobKey, job: JobView | None, pods: JobPods, rules: Rules, now: float) -> Route:
    """Decide about one key; `job` is None when it is gone."""
    look = Offer(key=key, tenant=tenant(_queue(job, pods), key.namespace, rules), seen=pods.version)
    if job is None:
        again = now + DRAINING_SECONDS if eligibility.draining(pods.queue, rules) else 0.0
        return Route(offer=look, again=again) if pods.occupy else Route(remove=True)
    if job.finished and job.bare and not (job.deleting or pods.exist):
        return Route(remove=True)
    if job.deleting or job.finished:
        return Route(offer=look, remove=not pods.occupy)
    if job.invalid:
        return Route(offer=look, remove=not pods.occupy, in_turn=not pods.exist)
    if job.suspended:
        idle = job.admission is None and not pods.exist
        return Route(offer=look, remove=job.admission is None and not pods.occupy, in_turn=idle)
    if job.admission is not None:
        charged = job.admission.attempt if job.phase == "Admitted" else 0
        again = now + DRAINING_SECONDS if eligibility.draining(job.admission.queue, rules) else 0.0
        return Route(offer=look, charged=charged, again=again)
    if pods.occupy:
        return Route(offer=look)
    return _waiting(job, look, rules, now)


def tenant(queue: str, namespace: str, rules: Rules) -> str:
    """The tenant whose turns the jobs of a namespace use that name a queue.

    Users write the names of queues. So a name makes a tenant only if it is that of a TenantQueue that the namespace may
    use: an invented name makes none, and no job uses up the turns of a queue that is not for it.

        the queue is a TenantQueue that is for some namespaces, this one among them    its name, "team-a"
        it is one for every namespace: its users are many tenants                      "shared/team-a"
        anything else: the jobs of the namespace take turns together                   "/team-a"
    """
    if not eligibility.allowed(queue, namespace, rules):
        return f"/{namespace}"
    return f"{queue}/{namespace}" if rules.queues[queue].public else queue


def _queue(job: JobView | None, pods: JobPods) -> str:
    """The queue that an admitted job is charged to, else the one that the job names, or its pods if it is gone."""
    if job is None:
        return pods.queue
    return job.admission.queue if job.admission is not None else job.queue


def _waiting(job: JobView, look: Offer, rules: Rules, now: float) -> Route:
    stands = eligibility.of(job, rules, now)
    return Route(
        put=entry(job, rules) if stands.ordered else None,
        remove=not stands.ordered,
        offer=_written(job, look, rules.queued_after),
        in_turn=True,
        over=_over(job, rules) if stands.ordered else 0,
        again=stands.until,
        told=_told(job, stands),
    )


def _over(job: JobView, rules: Rules) -> int:
    """Which attempts are over. Phase Suspended is that of a job whose owner let it go on before its room was freed."""
    if eligibility.draining(job.queue, rules):
        return job.attempt + 1
    return job.attempt if job.phase == "Queued" else 0


def _told(job: JobView, stands: Standing) -> Standing | None:
    """What is said of heads that wait long is left to whoever looks at heads."""
    said_here = job.told in eligibility.CODES
    news = stands.code != job.told or eligibility.outdated(job, stands)
    return stands if news and (stands.code or said_here) else None


def _written(job: JobView, look: Offer, queued_after: float) -> Offer | None:
    if job.phase == "Queued":
        return None
    # A job admitted within the delay is written to as Admitted straight away: one write saved on the hot path. One that
    # was suspended or sent back says something untrue until it is written, so it does not wait.
    return replace(look, delay=queued_after if not job.phase else 0.0)


def entry(job: JobView, rules: Rules) -> Entry:
    """The job as it waits."""
    return Entry(
        key=job.key,
        queue=job.queue,
        submitted=job.submitted,
        sequence=job.sequence,
        priority=eligibility.priority(job, rules),
        attempt=job.attempt + 1,
        demand=job.charge,
        returning=job.returning,
        port=job.wants_port or rules.shared_address,
    )


def place(job: JobView, rules: Rules) -> tuple[float, str]:
    """What to sort the waiting jobs of a queue by."""
    spec = rules.queues.get(job.queue, TenantQueueSpec())
    return order.place(entry(job, rules), spec.aging_seconds)


def is_charged_in_full(entry: Entry, charge: Reservation) -> bool:
    """Return whether the charge of a waiting job is what the job asks for now."""
    return charge.serves(entry.queue, entry.demand, port=entry.port)
