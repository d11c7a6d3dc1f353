"""What to do about one job: a table of its states in the cluster.

One rule: pure and level-triggered. The same state always gives the same route, so a missed event costs nothing.

    state of the job                    entry     charge    a worker reconciles the job
    deleted or deleting, pods occupy    -         keep      yes (deletes the pods)
    deleted, pods occupy, queue drains  -         keep      yes (shortens their grace), and again soon
    deleted or deleting, no pod         remove    free      yes, unless deleted
    occupies
    finished, pods occupy               -         keep      yes (cleans up)
    finished, no pod occupies           remove    free      yes (cleans up)
    finished, nothing to clean up       remove    free      no
    cancelled, admitted or occupied     -         keep      yes (writes Failed, deletes the pods)
    cancelled, otherwise                remove    free      yes (writes Failed)
    suspended, admitted or occupied     -         keep      yes (deletes the pods)
    suspended, otherwise                remove    free      yes (writes Suspended)
    invalid, pods occupy                -         keep      yes (writes Failed, deletes the pods)
    invalid, no pod occupies            remove    free      yes (writes Failed)
    admitted                            withdraw  keep      yes
    admitted, wants more workers        grow      keep      yes
    admitted, its queue drains          withdraw  keep      yes (deletes the pods), and again soon
    waiting, out of order (eligibility) remove    free      in a second (writes Queued), unless written
    waiting                             put       -         in a second (writes Queued), unless written
    waiting, sent back                  put       free old  in a second (writes Queued), unless written
    waiting, its queue drains           put       free      in a second (writes Queued), unless written
    waiting, edited since its pick      put       free old  in a second (writes Queued), unless written

The entry of a growth (`coordinator.routing.growth_entries`) is withdrawn in every state that keeps the charge, unless
the job wants more workers. `coordinator.routing.held_charges` finds the part of the store's charge that no worker has
written yet, and the part that is to be freed: the table does not depend on either.

What a reconcile is for (`queues.work_kinds`): it ends while a charge is kept that is to be freed, as a whole or in
part. It begins for other admitted jobs, unless the job runs and only its status is to be written. Else it tells.

A reconcile that only writes the status of a job that holds nothing (Queued, Suspended, or Failed for an invalid or
cancelled job) waits for its tenant's turn (`coordinator.leader.queued_limiter`).

The charge of an attempt that is over is freed once the job waits again. A charge for a newer attempt is a pick that a
worker has yet to write.
"""

from dataclasses import dataclass, replace

from coordinator.cache.routing_rules import RoutingRules
from coordinator.cache.views import JobPods, JobView
from coordinator.routing import elastic_limits, eligibility, growth_entries
from coordinator.routing.eligibility import Eligibility
from crds.keys import JobKey
from crds.resources import amounts
from crds.tenantqueue import TenantQueueSpec
from crds.torchjob.status import Admission
from queues import order
from queues.placement import pod_nodes
from queues.tasks import Offer
from queues.values import Entry, Reservation
from queues.work_kinds import WorkKind

DRAINING_SECONDS = 5.0
"""How soon, in seconds, an admitted job of a draining queue is routed again: the worker may not know of the drain
yet."""

COUNT_AGAIN = 30.0
"""How soon, in seconds, a worker looks again for the resource claims of a job that it could not count."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """What to do about one key: at most one of `put` and `remove`, and perhaps an offer."""

    put: Entry | None = None
    remove: bool = False
    withdraw: bool = False
    """Whether the entry of a growth is deleted, if there is one. The charge stays."""
    offer: Offer | None = None
    in_turn: bool = False
    """Whether the offer waits for its tenant's turn: the job holds nothing, and only its status is written."""
    compared: bool = False
    """Whether the admission is compared with what the store holds: it was just written, or its charge may change."""
    finished_attempt: int = 0
    """A charge for this attempt or an earlier one is freed before the entry is put; 0: none."""
    due_at: float = 0.0
    """When time alone changes the route, in seconds since 1970; 0: never."""
    reason: Eligibility | None = None
    """The reason that the job's status should give at once for its waiting; None: the status need not change."""


def route(key: JobKey, job: JobView | None, pods: JobPods, rules: RoutingRules, now: float) -> Route:
    """Return what to do about one key; `job` is None if it does not exist any more."""
    of, kind = tenant(_queue(job, pods), key.namespace, rules), _kind(job, pods, rules)
    offer = Offer(key=key, tenant=of, seen=pods.version, kind=kind)
    if job is None:
        again = now + DRAINING_SECONDS if eligibility.is_draining(pods.queue, rules) else 0.0
        return Route(offer=offer, withdraw=True, due_at=again) if pods.occupy else Route(remove=True)
    if job.finished and job.bare and not (job.deleting or pods.exist):
        return Route(remove=True)
    may_grow = job.invalid or job.workers is not None  # nothing is known of the workers of an invalid job
    if job.deleting or job.finished:
        return Route(offer=offer, remove=not pods.occupy, withdraw=may_grow and pods.occupy)
    if job.invalid:
        return Route(offer=offer, remove=not pods.occupy, withdraw=pods.occupy, in_turn=not pods.exist)
    if job.stopped:
        idle, free = job.admission is None and not pods.exist, job.admission is None and not pods.occupy
        return Route(offer=offer, remove=free, withdraw=may_grow and not free, in_turn=idle)
    if job.admission is not None:
        return _admitted(job, job.admission, offer, rules, now)
    if pods.occupy:
        return Route(offer=offer, withdraw=may_grow)
    return _waiting(job, offer, rules, now)


def with_requests(
    result: Route, key: JobKey, job: JobView | None, pods: JobPods, rules: RoutingRules, again: float
) -> Route:
    """Return the route of a key with scale requests: a worker reconciles it in any case. `again` is the time at which
    the job is routed again, in seconds since 1970; 0 if the requests need no such time."""
    result = replace(result, due_at=min(filter(None, (result.due_at, again)), default=0.0))
    if result.offer is not None:
        return replace(result, offer=replace(result.offer, delay=0.0))
    of = tenant(_queue(job, pods), key.namespace, rules)
    return replace(result, offer=Offer(key=key, tenant=of, seen=pods.version, kind="tells"), in_turn=True)


def _kind(job: JobView | None, pods: JobPods, rules: RoutingRules) -> WorkKind:
    """Return what a reconcile of the job is for."""
    admission = job.admission if job is not None else None
    if job is None or admission is None or job.finished or job.deleting or job.invalid:
        return "ends" if pods.occupy else "tells"
    if job.stopped or (pods.exist and not pods.occupy) or _gives_back(job, admission):
        return "ends"
    if eligibility.is_draining(admission.queue, rules):
        return "ends"
    is_settled = job.phase == "Running" and job.observed and job.workers is None and not pods.ended
    return "tells" if is_settled else "begins"


def _gives_back(job: JobView, admission: Admission) -> bool:
    """Return whether an admitted job is to give its room back to others, or a part of it."""
    scaling = job.autoscaling
    target = scaling.in_force if scaling is not None else None
    leaves = scaling is not None and scaling.leaving > 0
    return (
        leaves
        or (job.waits is not None and job.waits.recalled)
        or (target is not None and target.workers < (admission.workers or 0))
    )


def _admitted(job: JobView, admission: Admission, offer: Offer, rules: RoutingRules, now: float) -> Route:
    again = now + DRAINING_SECONDS if eligibility.is_draining(admission.queue, rules) else 0.0
    wanted, resizable = growth_entries.entry(job, rules, now), job.workers is not None
    return Route(
        put=wanted,
        withdraw=resizable and wanted is None,
        offer=offer,
        compared=resizable or job.phase == "Admitted",
        due_at=again or growth_entries.judge(job, rules, now).until,
    )


def tenant(queue: str, namespace: str, rules: RoutingRules) -> str:
    """Return the tenant whose turns are used by the jobs of a namespace that name a queue.

    Users write the names of queues. So a queue is a tenant of its own only if it is a TenantQueue that the namespace
    may use. An invented name makes no tenant, and a job cannot use the turns of a queue that is not for it.

        a TenantQueue for some namespaces, this one among them           its name, "team-a"
        a TenantQueue for every namespace: its users are many tenants    "shared/team-a"
        any other name: the jobs of the namespace share one tenant       "/team-a"
    """
    if not eligibility.is_allowed(queue, namespace, rules):
        return f"/{namespace}"
    return f"{queue}/{namespace}" if rules.queues[queue].is_public else queue


def _queue(job: JobView | None, pods: JobPods) -> str:
    """Return the queue of the job's admission, else the queue that the job names. For a deleted job, return the queue
    that its pods name."""
    if job is None:
        return pods.queue
    return job.admission.queue if job.admission is not None else job.queue


def _waiting(job: JobView, offer: Offer, rules: RoutingRules, now: float) -> Route:
    job_eligibility = eligibility.of(job, rules, now)
    return Route(
        put=entry(job, rules) if job_eligibility.ordered else None,
        remove=not job_eligibility.ordered,
        offer=_delay_offer(job, offer, rules.queued_after),
        in_turn=True,
        finished_attempt=_finished_attempt(job, rules) if job_eligibility.ordered else 0,
        due_at=job_eligibility.until or (now + COUNT_AGAIN if job.uncounted else 0.0),
        reason=_news(job, job_eligibility),
    )


def _finished_attempt(job: JobView, rules: RoutingRules) -> int:
    """Return the newest attempt that is over; 0 if no attempt is over.

    If the queue drains, the pick after the newest attempt is over as well. The attempt of a job in phase Suspended is
    not over: the owner resumed the job before its room was freed.
    """
    if eligibility.is_draining(job.queue, rules):
        return job.attempt + 1
    return job.attempt if job.phase == "Queued" else 0


def _news(job: JobView, job_eligibility: Eligibility) -> Eligibility | None:
    """Return the eligibility that the status should show; None if the status may stay.
    `coordinator.leader.reasons` finds the reasons of the first jobs of queues."""
    is_routing_reason = job.reason in eligibility.CODES
    code = job_eligibility.code
    is_new = code != job.reason or eligibility.is_outdated(job, code, job_eligibility.sentence)
    return job_eligibility if is_new and (code or is_routing_reason) else None


def _delay_offer(job: JobView, offer: Offer, queued_after: float) -> Offer | None:
    """Return the offer for the write of Queued, delayed if the job is new; None if Queued is written already."""
    if job.uncounted:
        return replace(offer, delay=0.0)  # a worker counts the devices of its claims
    if job.phase == "Queued":
        return None
    # A job that is admitted within the delay needs no write of Queued: that saves a write for most jobs. The status of
    # a job that was suspended or sent back is wrong until it is written, so the write for such a job is not delayed.
    return replace(offer, delay=queued_after if not job.phase else 0.0)


def entry(job: JobView, rules: RoutingRules) -> Entry:
    """Return the entry of a waiting job. If a job can be admitted with fewer workers than it requests, the entry
    demands the least number, and takes as many further workers as fit.
    """
    waiting, counts = _least_entry(job, rules), job.workers
    if counts is None:
        return waiting
    most = elastic_limits.of_waiting(job, counts, rules)
    if not most:
        return replace(waiting, size=counts.least)
    return replace(waiting, size=counts.least, unit=counts.share, most=most, step=counts.step)


def _least_entry(job: JobView, rules: RoutingRules) -> Entry:
    return Entry(
        key=job.key,
        queue=job.queue,
        submitted=job.submitted,
        sequence=job.sequence,
        priority=eligibility.priority(job, rules),
        attempt=job.attempt + 1,
        demand=job.least_charge,
        returning=job.returning,
        port=job.wants_port or rules.shared_address,
    )


def sort_key(job: JobView, rules: RoutingRules) -> tuple[float, str]:
    """Return the sort key of a waiting job within its queue."""
    spec = rules.queues.get(job.queue, TenantQueueSpec())
    return order.place(_least_entry(job, rules), spec.aging_seconds)


def is_charged_in_full(job: JobView, entry: Entry, charge: Reservation) -> bool:
    """Return whether the charge of a waiting job matches the present requests of the job: a number of workers with
    which it can be admitted, the amounts for that number, and a domain where the job requires one.
    """
    counts, demand = job.workers, entry.demand
    if job.gang is not None and not pod_nodes.is_in(charge.nodes, job.gang.required):
        return False
    if counts is not None:
        if not counts.contains(charge.size):
            return False
        demand = amounts.add(demand, amounts.scale(counts.share, charge.size - counts.least))
    return charge.serves(entry.queue, demand, port=entry.port)
