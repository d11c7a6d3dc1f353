"""How many workers beyond its least number a job could ever be given.

One rule: pure, and independent of the room that is free now. A job that could never have all of its workers waits only
for the workers that it could have.
"""

import bisect
from collections.abc import Callable

from coordinator.cache.routing_rules import RoutingRules
from coordinator.cache.views import JobView
from coordinator.cache.worker_counts import WorkerCounts
from coordinator.routing import gang_queues
from crds.resources import amounts
from crds.resources.amounts import NOTHING, OTHERS, Amounts
from crds.torchjob import resource_quota
from crds.torchjob.status import Admission


def of_waiting(job: JobView, counts: WorkerCounts, rules: RoutingRules) -> int:
    """Return the most workers that a waiting job gets beyond its least number, as a multiple of its step.

    A job that is first in its queue because it held room gets no more room than it held. A job that a ResourceQuota has
    refused gets no further workers: the number that would be refused again is not known.
    """
    if job.waits is not None and job.waits.refusal is not None:
        return 0
    limits = [rules.ceilings.get(job.queue, NOTHING)]
    if job.returning and job.waits is not None and job.waits.held is not None:
        limits.append({**job.waits.held, OTHERS: 0})
    quotas, least = rules.quotas.get(job.key.namespace, ()), counts.least_charge

    def fits(count: int) -> bool:
        more = amounts.scale(counts.share, count)
        is_within = all(amounts.fits(more, least, limit) for limit in limits)
        together = amounts.add(least, more)
        return is_within and resource_quota.has_room(together, quotas) and gang_queues.has_room(job, together, rules)

    return most(counts.wanted - counts.least, counts.step, fits)


def of_admitted(job: JobView, admission: Admission, wanted: int, step: int, share: Amounts, rules: RoutingRules) -> int:
    """Return the most workers, up to `wanted`, that an admitted job could be given."""
    ceiling = rules.ceilings.get(admission.queue, NOTHING)

    def fits(count: int) -> bool:
        more = amounts.scale(share, count)
        return amounts.fits(more, admission.charge, ceiling) and gang_queues.has_room(job, more, rules)

    return most(wanted, step, fits)


def most(limit: int, step: int, fits: Callable[[int], bool]) -> int:
    """Return the largest multiple of a step that is not above a limit and fits. If a number fits, every smaller number
    must fit as well."""
    return step * bisect.bisect_left(range(step, limit + 1, step), True, key=lambda count: not fits(count))
