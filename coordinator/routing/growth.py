"""The entry with which an admitted job waits for more workers, and why it does not wait in the order of its queue.

One rule: pure. A growth waits in the queue that its job is charged to, with the time of its request as its age. It
demands one step of workers at least, or all of them if they are added all or none. What could never fit beside the
charge of the job is not demanded.

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
from coordinator.routing import eligibility, further_workers
from coordinator.routing.eligibility import Eligibility
from crds.resources import amounts
from crds.resources.amounts import NOTHING, Amounts
from crds.torchjob.status import Admission
from queues.picking import explain
from queues.values import Entry


class _Request(NamedTuple):
    """What an admitted job asks for."""

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
    request = _request(job)
    if request is None or not judge(job, rules, now).ordered:
        return None
    admission, step, share = request.admission, request.step, request.counts.share
    ceiling = rules.ceilings.get(admission.queue, NOTHING)
    most = further_workers.of_admitted(request.missing, step, share, admission.charge, ceiling)
    return Entry(
        key=job.key,
        queue=admission.queue,
        kind="grow",
        submitted=request.growth.since,
        priority=eligibility.priority(job, rules),
        attempt=admission.attempt,
        demand=request.demand,
        size=step,
        unit=NOTHING if request.growth.whole else share,
        most=most - step,
        step=step,
        grown=admission.grown or 0,
    )


def judge(job: JobView, rules: RoutingRules, now: float) -> Eligibility:
    """Return whether the growth that a job wants has its place in the order, and the reason if it has not."""
    request = _request(job)
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


def quota_view(job: JobView) -> JobView:
    """Return a job with the charge that it waits for: of an admitted job, that of the workers to be added."""
    request = _request(job)
    if request is None:
        return job
    return replace(job, queue=request.admission.queue, charge=request.demand, workers=None, waits=None)


def missing(job: JobView) -> int:
    """Return how many more workers an admitted job wants."""
    request = _request(job)
    return request.missing if request is not None else 0


def _request(job: JobView) -> _Request | None:
    counts, admission = job.workers, job.admission
    over = job.suspended or job.finished or job.deleting
    if counts is None or counts.growth is None or admission is None or over:
        return None
    return _Request(admission, counts, counts.growth)
