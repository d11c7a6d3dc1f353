"""The check whether the ResourceQuotas of a namespace have room for a waiting job.

One rule: pure. Without this check, such a job would be admitted, refused and sent back, and its queue would pay for it.

A job counts as fitting if it is not known in advance whether the job fits. A refusal by the API
server then sends the job back, for a pause that grows (`reconcilers.plan.over_quota`). A pause ends early when the
ResourceQuota is deleted or its limits are raised, when the spec of the job is changed, or when the owner asks for
another try.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from coordinator.cache.job_waits import QuotaRefusal
from coordinator.cache.views import JobView
from crds.keys import JobKey
from crds.resources import amounts
from crds.resources.amounts import Amounts
from crds.torchjob import resource_quota
from crds.torchjob.resource_quota import NamespaceDemand, Quota

Taken = Mapping[str, Amounts]
"""By ResourceQuota, the amounts that the jobs before this one are about to use."""
CODE = "NamespaceQuota"
"""The reason of a job that waits for room in a ResourceQuota."""
YIELDS = "the ResourceQuotas of the namespace have room for older jobs only, which were refused before it"
PAUSES = "it is tried again at status.queue.notBefore"


@dataclass(frozen=True, slots=True)
class QuotaBlock:
    """Why ResourceQuotas keep a job out of the order of its queue."""

    sentence: str
    until: float = 0.0
    """When time alone ends the block, in seconds since 1970; 0: never."""


def find_block(job: JobView, quotas: tuple[Quota, ...], now: float, *, services: bool = True) -> QuotaBlock | None:
    """Return why the ResourceQuotas of its namespace have no room for a job; None if they have room or that is not
    known.

    `services` is whether jobs have services, which count as well.
    """
    refusal = job.waits.refusal if job.waits else None
    if refusal is None and resource_quota.has_room(job.least_charge, quotas):
        return None
    short = resource_quota.shortage(quota_needs(job), quotas, services=services)
    if short is not None:
        return QuotaBlock(str(short))
    waits = job.waits
    if waits is None or refusal is None or _is_over(refusal, quotas):
        return None
    if waits.until <= now or (waits.retry and waits.retry <= now):
        return None
    name = f"ResourceQuota {refusal.quota}" if refusal.quota else "A ResourceQuota"
    lacking = [f"{limit} {value}" for limit, value in refusal.hard if value.startswith(resource_quota.UNSPECIFIED)]
    why = f": they must specify {'; '.join(lacking)} (in the template, or by a LimitRange)" if lacking else ""
    sentence = f"{name} of the namespace refused the job's pods{why}, and may refuse them again: {PAUSES}"
    return QuotaBlock(sentence, min(waits.until, waits.retry or waits.until))


def quota_needs(job: JobView) -> NamespaceDemand:
    """Return the requests of a job to ResourceQuotas: from its templates if a ResourceQuota has refused it, else from
    its charge.
    """
    refusal = job.waits.refusal if job.waits else None
    return refusal.needs if refusal is not None else resource_quota.of_charge(job.least_charge)


def _is_over(refusal: QuotaRefusal, quotas: tuple[Quota, ...]) -> bool:
    """Return whether the ResourceQuota that refused the job is gone, or one of its limits is gone or higher."""
    if refusal.outdated:
        return True
    if not refusal.quota:
        return False
    quota = next((quota for quota in quotas if quota.name == refusal.quota), None)
    limits = {limit.name: limit.hard for limit in quota.limits} if quota is not None else {}
    return quota is None or any(
        name not in limits or _is_raised(name, hard, limits[name]) for name, hard in refusal.hard
    )


def _is_raised(name: str, before: str, hard: int) -> bool:
    """Return whether a limit is higher now than before."""
    try:
        return bool(before) and resource_quota.amount(name, before) < hard
    except ValueError:
        return False


def yielding_jobs(
    jobs: Iterable[JobView],
    quotas: tuple[Quota, ...],
    now: float,
    *,
    services: bool,
    arrived: Callable[[JobKey], int],
    place: Callable[[JobView], Any],
) -> frozenset[JobKey]:
    """Return the jobs of a namespace that ResourceQuotas refused before and that let others go first.

    In each queue, only the first jobs that fit together are in the order. Otherwise all refused jobs would be picked
    when there is room for one, and all jobs but one would be refused again.

    `arrived` returns how many pods of a job exist: until all of its pods do, the ResourceQuota does not show the
    others as used. `place` sorts the jobs of a queue. A job whose status has another reason to wait, for example free
    GPUs, keeps no other job waiting, since this wait may be long.
    """
    refused = [job for job in jobs if job.waits is not None and job.waits.refusal is not None]
    if len(refused) < 2 or not quotas:
        return frozenset()
    coming: Taken = {}
    for job in refused:
        if _is_on_its_way(job, arrived):
            coming = _with(coming, job, quotas)
    by_queue: dict[str, Taken] = {}
    result = set()
    for job in sorted((job for job in refused if job.competes and not job.held), key=place):
        used = by_queue.setdefault(job.queue, coming)
        if job.reason not in ("", CODE) or find_block(job, quotas, now, services=services) is not None:
            continue
        if resource_quota.shortage(quota_needs(job), quotas, services=services, claimed=used) is not None:
            result.add(job.key)
        else:
            by_queue[job.queue] = _with(used, job, quotas)
    return frozenset(result)


def _with(used: Taken, job: JobView, quotas: Iterable[Quota]) -> Taken:
    """Return the used amounts with the demand of a job added."""
    request = quota_needs(job)
    return {
        quota.name: amounts.add(used.get(quota.name, amounts.NOTHING), resource_quota.demand_on(request, quota))
        for quota in quotas
    }


def _is_on_its_way(job: JobView, arrived: Callable[[JobKey], int]) -> bool:
    """Return whether a job holds room and not all its pods exist yet."""
    admission = job.admission if job.phase == "Admitted" and not job.deleting else None
    return admission is not None and arrived(job.key) < admission.charge.get(amounts.PODS, 0)
