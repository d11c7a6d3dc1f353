"""The judgement which jobs are kept out of the order of their queues by ResourceQuotas of their namespaces, by
queues of the gang scheduler, and by the ports of a shared machine.

One rule: a namespace is judged as a whole, because its jobs compete for the same ResourceQuotas; so are all ports, and
all queues of the gang scheduler. Of jobs that compete for such a queue, each pick takes its room at once
(`take_gang_room`).
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial

from coordinator.cache.routing_rules import RoutingRules
from coordinator.cache.views import JobView
from coordinator.cache.watches import Watches
from coordinator.routing import (
    chosen_ports,
    elastic_limits,
    eligibility,
    gang_queues,
    growth_entries,
    namespace_quota,
    route,
)
from coordinator.routing.chosen_ports import PortClaim
from coordinator.routing.gang_queues import Share
from crds.keys import JobKey
from crds.resources.amounts import NOTHING, Amounts
from crds.torchjob import resource_quota
from crds.torchjob.demand import HostPort
from queues.values import Reservation

Charges = Callable[[Sequence[JobKey]], Mapping[JobKey, Reservation]]
"""Returns what the store holds for some jobs."""


def judge_due(
    watches: Watches, rules: Callable[[], RoutingRules], clock: Callable[[], float], charges: Charges | None = None
) -> None:
    """Judge each namespace whose jobs or ResourceQuotas changed, the ports if a job that chose one has changed, and the
    queues of the gang scheduler if a queue or its jobs have changed.

    Mark the jobs for which the result has changed. Without `charges`, nothing is known of picks that no worker has
    written yet.
    """
    _judge_ports(watches, rules, clock)
    _judge_gang_queues(watches, rules, clock, charges or (lambda _: {}))
    for namespace, keys in watches.quota_jobs.take_due():
        jobs = [job for key in keys if (job := watches.job(key)) is not None]
        before, now = rules(), clock()
        quotas = before.quotas.get(namespace, ())
        yielding = namespace_quota.yielding_jobs(
            jobs,
            quotas,
            now,
            services=not before.shared_address,
            arrived=partial(_occupying_pods, watches),
            place=partial(route.sort_key, rules=before),
        )
        watches.rule_watches.judge_yielding(namespace, yielding)
        after = rules()
        blocked = frozenset(
            job.key
            for job in jobs
            if (job.admission is None or growth_entries.missing(job))
            and eligibility.quota_block(growth_entries.quota_view(job), after, now)
        )
        watches.mark(watches.quota_jobs.record(namespace, blocked, limited=bool(quotas)))


def take_gang_room(watches: Watches, rules: RoutingRules, key: JobKey, demand: Amounts) -> bool:
    """Take room in its queue of the gang scheduler for a job that is about to be picked; return False if there is no
    room.

    So the jobs of one round of picks, and of those until the next judgement, fit together.
    """
    job = watches.job(key) if watches.gang_queues.informers and demand else None
    if job is None:
        return True
    if rules.gang_rooms is None:  # the job came after the judgement of this round
        return watches.gang_queues.known is None or not gang_queues.queue_of(job, rules)
    levels = gang_queues.levels_of(job, rules)
    if not levels:
        return True
    if not gang_queues.has_room(job, demand, rules, watches.gang_jobs.taken):
        return False
    watches.gang_jobs.take(key, gang_queues.needs(job, demand), levels)
    return True


def _judge_gang_queues(
    watches: Watches, rules: Callable[[], RoutingRules], clock: Callable[[], float], charges: Charges
) -> None:
    before = rules()
    # The first job that names such a queue is not to be picked before the rooms are known.
    if not watches.gang_jobs.take_due(before.gang_rooms is None and bool(watches.gang_queues.informers)):
        return
    queues = watches.gang_queues.known
    jobs = _gang_jobs(watches, before) if queues is not None else {}
    rooms = gang_queues.rooms(queues, _shares(watches, before, jobs, charges)) if queues is not None and jobs else None
    if rooms is None:
        watches.gang_jobs.picked.clear()
    holders = frozenset(watches.gang_jobs.picked)
    watches.rule_watches.judge(gang_scheduler=before.gang_scheduler, gang_rooms=rooms, gang_holders=holders)
    watches.gang_jobs.taken.clear()
    after, now = rules(), clock()
    watches.mark(
        key
        for key, job in jobs.items()
        if not job.finished and _gang_verdict(job, before, now) != _gang_verdict(job, after, now)
    )


def _gang_jobs(watches: Watches, rules: RoutingRules) -> dict[JobKey, JobView]:
    """Return the unfinished jobs whose groups wait in queues of the gang scheduler that they or their queues name."""
    named = [job for key in watches.gang_jobs.naming() if (job := watches.job(key)) is not None]
    for name, spec in rules.queues.items():
        if spec.default_gang_queue:
            named += watches.jobs.indexed(name)
    return {job.key: job for job in named if not job.finished and gang_queues.queue_of(job, rules)}


def _shares(watches: Watches, rules: RoutingRules, jobs: Mapping[JobKey, JobView], charges: Charges) -> Iterator[Share]:
    """Yield the parts of the gang scheduler's queues that jobs hold. A pick is counted before a worker has written
    it."""
    picked = watches.gang_jobs.picked
    held = charges(list(picked)) if picked else {}
    for key in [*picked]:
        admission = jobs[key].admission if key in jobs else None
        if key not in held or (admission is not None and admission.charge == held[key].charge):
            del picked[key]
    for key, job in jobs.items():
        charge = held[key].charge if key in picked else NOTHING
        share = gang_queues.share_of(job, watches.job_pods(key), rules, charge)
        if share is not None:
            yield share


def _gang_verdict(job: JobView, rules: RoutingRules, now: float) -> object:
    """Return the limits of the gang scheduler's queues for a job: a place in the order, and how many further
    workers."""
    if job.admission is not None:
        return growth_entries.entry(job, rules, now) if growth_entries.missing(job) else None
    sentence = gang_queues.shortage(job, job.least_charge, rules)
    more = 0 if job.workers is None or sentence else elastic_limits.of_waiting(job, job.workers, rules)
    return resource_quota.without_usage(sentence), more


def _judge_ports(watches: Watches, rules: Callable[[], RoutingRules], clock: Callable[[], float]) -> None:
    keys = watches.port_jobs.take_due()
    if keys is None or not (before := rules()).shared_address:
        return
    jobs = {key: job for key in keys if (job := watches.job(key)) is not None and job.ports}
    found = (
        eligibility.port_claim(job, before, clock(), occupies=bool(_occupying_pods(watches, key)))
        for key, job in jobs.items()
    )
    claims = [claim for claim in found if claim is not None]
    ending = {key for key in keys if key not in jobs and _occupying_pods(watches, key)}  # they were deleted
    held = ((port, key) for port, key in before.ports.items() if key in ending)
    claims += [PortClaim(key, frozenset({port}), holds=True) for port, key in held]
    claims += _reserved_ports(watches, {port for job in jobs.values() for port in job.ports})
    owners = chosen_ports.owners(claims, before.ports)
    watches.rule_watches.judge(ports=owners)
    after = rules()
    kept = {claim.key for claim in claims} | {key for key, job in jobs.items() if not job.finished}
    watches.port_jobs.record(owners.values(), set(keys) - kept)
    watches.mark(
        key for key, job in jobs.items() if eligibility.port_wait(job, before) != eligibility.port_wait(job, after)
    )


def _reserved_ports(watches: Watches, chosen: Collection[HostPort]) -> Iterator[PortClaim]:
    """Yield the jobs for which a port is reserved that another job chose."""
    for job in watches.jobs.values() if chosen else ():
        if job.admission is not None and not job.finished and HostPort(job.admission.port) in chosen:
            yield PortClaim(job.key, frozenset({HostPort(job.admission.port)}), holds=True)


def _occupying_pods(watches: Watches, key: JobKey) -> int:
    return sum(pod.occupies for pod in watches.pods.indexed(key.uid))
