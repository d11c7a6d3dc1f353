"""The entry with which an admitted job waits for more workers, and why it does not wait in the order of its queue.

One rule: pure. A growth waits in the queue that its job is charged to, with the time of its request as its age. A
growth demands at least one step of workers, or all workers if they are added all or none. A growth does not demand
steps that could never fit beside the charge of the job. Workers that the job has as idle growth, and that its owner
wants by now, are paid for first: such an entry demands nothing, and is as old as the last resize.

    code                                        the growth is out of the order while
    BackingOff                                  workers that were added did not join, until status.scaling.notBefore
    QueueDrained                                its queue drains: the job loses its room
    ExceedsQuota                                quota, cohort and pool can never give one more step
    other codes (`coordinator.routing.eligibility`)   as for a waiting job
"""

from dataclasses import replace
from typing import NamedTuple

from coordinator.cache.routing_rules import RoutingRules
from coordinator.cache.views import JobView
from coordinator.cache.worker_counts import WantedGrowth, WorkerCounts
from coordinator.routing import elastic_limits, eligibility
from coordinator.routing.eligibility import Eligibility
from crds.resources import amounts
from crds.resources.amounts import NOTHING, Amounts
from crds.torchjob.status import Admission
from queues.picking import explain
from queues.values import Entry


class _Payment(NamedTuple):
    """The workers that an admitted job has as idle growth and that its owner wants, for which its queue is to pay."""

    admission: Admission
    counts: WorkerCounts
    workers: int
    since: float


class _Request(NamedTuple):
    """The workers that an admitted job asks for."""

    admission: Admission
    counts: WorkerCounts
    growth: WantedGrowth

    @property
    def missing(self) -> int:
        return self.growth.to - (self.admission.workers or 0)

    @property
    def step(self) -> int:
        """The least number of workers that are added at once."""
        if self.growth.whole:
            return self.missing
        return self.counts.step if self.missing % self.counts.step == 0 else 1

    @property
    def demand(self) -> Amounts:
        return amounts.scale(self.counts.share, self.step)


def entry(job: JobView, rules: RoutingRules, now: float) -> Entry | None:
    """Return the entry with which an admitted job waits for more workers; None if it does not wait in the order."""
    request, payment = _request(job), _payment(job)
    found = payment or request
    if found is None or not judge(job, rules, now).ordered:
        return None
    admission, share = found.admission, found.counts.share
    waiting = Entry(
        key=job.key,
        queue=admission.queue,
        kind="grow",
        submitted=0.0,
        priority=eligibility.priority(job, rules),
        attempt=admission.attempt,
        demand=NOTHING,
        grown=admission.grown or 0,
    )
    if payment is not None:
        return replace(waiting, submitted=payment.since, unit=share, idle=payment.workers)
    assert request is not None
    step = request.step
    most = elastic_limits.of_admitted(job, admission, request.missing, step, share, rules)
    return replace(
        waiting,
        submitted=request.growth.since,
        demand=request.demand,
        size=step,
        unit=NOTHING if request.growth.whole else share,
        most=most - step,
        step=step,
    )


def judge(job: JobView, rules: RoutingRules, now: float) -> Eligibility:
    """Return whether the growth that a job wants has its place in the order, and the reason if it has not."""
    request, payment = _request(job), _payment(job)
    if payment is not None:
        return _judge_payment(job, payment, rules, now)
    if request is None:
        return Eligibility(ordered=False)
    queue, growth = request.admission.queue, request.growth
    if growth.not_before > now:
        sentence = "workers that were added did not join: it is tried again at status.scaling.notBefore"
        return Eligibility("BackingOff", sentence, ordered=False, until=growth.not_before)
    if eligibility.is_draining(queue, rules):
        return Eligibility("QueueDrained", f"queue {queue} drains", ordered=False)
    found = eligibility.of(quota_view(job), replace(rules, ceilings={}), now)
    ceiling, charge = rules.ceilings.get(queue, NOTHING), request.admission.charge
    if found.ordered and not amounts.fits(request.demand, charge, ceiling):
        total = amounts.add(charge, request.demand)
        return Eligibility("ExceedsQuota", explain.too_large_message(queue, total, ceiling), ordered=False)
    return found


def _judge_payment(job: JobView, payment: _Payment, rules: RoutingRules, now: float) -> Eligibility:
    queue = payment.admission.queue
    if eligibility.is_draining(queue, rules):
        return Eligibility("QueueDrained", f"queue {queue} drains", ordered=False)
    paid_for = replace(job, queue=queue, charge=NOTHING, workers=None, waits=None)
    return eligibility.of(paid_for, replace(rules, ceilings={}), now)


def quota_view(job: JobView) -> JobView:
    """Return a job with the charge that it waits for: for an admitted job, the charge of the workers to be added."""
    request = _request(job)
    if request is None:
        return job
    return replace(job, queue=request.admission.queue, charge=request.demand, workers=None, waits=None)


def missing(job: JobView) -> int:
    """Return how many more workers an admitted job wants."""
    request = _request(job)
    return request.missing if request is not None else 0


def _payment(job: JobView) -> _Payment | None:
    """Return the workers for which the job's queue is to pay; None while some of its workers leave."""
    counts, admission = job.workers, job.admission
    over = job.stopped or job.finished or job.deleting
    if counts is None or counts.autoscaling is None or admission is None or admission.workers is None or over:
        return None
    scaling = counts.autoscaling
    unpaid = min(scaling.idle, counts.wanted - (admission.workers - scaling.idle))
    target = scaling.in_force
    leaves = scaling.leaving or (target is not None and target.workers < admission.workers)
    if unpaid <= 0 or leaves:
        return None
    admitted = admission.admitted_at.timestamp() if admission.admitted_at is not None else job.submitted
    return _Payment(admission, counts, unpaid, scaling.resized_at or admitted)


def _request(job: JobView) -> _Request | None:
    counts, admission = job.workers, job.admission
    over = job.stopped or job.finished or job.deleting
    if counts is None or counts.growth is None or admission is None or over:
        return None
    return _Request(admission, counts, counts.growth)
