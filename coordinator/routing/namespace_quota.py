"""Whether the ResourceQuotas of its namespace hold a waiting job.

One rule: pure. A job that they do not hold would be admitted, refused and sent back, and its queue would pay for that.

What is not known beforehand counts as fitting: the next refusal sends the job back, for a pause that grows
(`reconcilers.plan.over_quota`). A pause ends early when the ResourceQuota is deleted or its limits are raised, when
the spec
of the job is changed, and when another try is asked for.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from coordinator.cache.job_waits import Refusal
from coordinator.cache.views import JobView
from crds.keys import JobKey
from crds.resources import amounts
from crds.resources.amounts import Amounts
from crds.torchjob import resource_quota
from crds.torchjob.resource_quota import Needs, Quota

Taken = Mapping[str, Amounts]
"""What jobs that go first are about to use, by ResourceQuota."""
CODE = "NamespaceQuota"
"""The reason to wait of a job that they do not hold."""
YIELDS = "the ResourceQuotas of the namespace have room for older jobs first that were refused before it"
PAUSES = "it is tried again at status.queue.notBefore"


@dataclass(frozen=True, slots=True)
class Barred:
    """Why a job is kept out of the order of its queue."""

    sentence: str
    until: float = 0.0
    """When time alone ends that, in seconds since 1970; 0: never."""


def barred(job: JobView, quotas: tuple[Quota, ...], now: float, *, services: bool = True) -> Barred | None:
    """Why the ResourceQuotas of its namespace keep a job from being admitted; None if they do not, as far as that is
    known. `services`: whether pods have addresses of their own, named by services."""
    refusal = job.waits.refusal if job.waits else None
    if refusal is None and resource_quota.holds(job.charge, quotas):
        return None
    short = resource_quota.shortage(needs(job), quotas, services=services)
    if short is not None:
        return Barred(str(short))
    if job.waits is None or refusal is None or not _pauses(job, now) or _is_over(refusal, quotas):
        return None
    name = f"ResourceQuota {refusal.quota}" if refusal.quota else "A ResourceQuota"
    sentence = f"{name} of the namespace refused the job's pods, and nothing shows that it would not again: {PAUSES}"
    return Barred(sentence, min(job.waits.until, job.waits.retry or job.waits.until))


def needs(job: JobView) -> Needs:
    """What a job asks of ResourceQuotas: by its templates if one has refused it, else by its charge."""
    refusal = job.waits.refusal if job.waits else None
    return refusal.needs if refusal is not None else resource_quota.of_charge(job.charge)


def _pauses(job: JobView, now: float) -> bool:
    waits = job.waits
    return waits is not None and waits.until > now and not (waits.retry and waits.retry <= now)


def _is_over(refusal: Refusal, quotas: tuple[Quota, ...]) -> bool:
    """Whether what refused the job is not there any more: the ResourceQuota, or one of the limits that it named."""
    if refusal.outdated:
        return True
    if not refusal.quota:
        return False
    quota = next((each for each in quotas if each.name == refusal.quota), None)
    limits = {each.name: each.hard for each in quota.limits} if quota is not None else {}
    return quota is None or any(name not in limits or _less(name, hard, limits[name]) for name, hard in refusal.hard)


def _less(name: str, before: str, hard: int) -> bool:
    """Whether a limit has been raised since."""
    try:
        return bool(before) and resource_quota.amount(name, before) < hard
    except ValueError:
        return False


def yielding(
    jobs: Iterable[JobView],
    quotas: tuple[Quota, ...],
    now: float,
    *,
    services: bool,
    arrived: Callable[[JobKey], int],
    place: Callable[[JobView], Any],
) -> frozenset[JobKey]:
    """Of the jobs of a namespace that were refused before, those that have to let others go first: of one queue as many
    are in the order as fit together, the first ones of the queue. Otherwise all of them would be picked when there is
    room for one, and all but one be refused again.

    `arrived` is how many pods of a job are there: until all of a job's pods are, what its ResourceQuota shows as used
    lacks the others. `place` sorts the jobs of a queue. A job whose status says that it waits for something else, for
    GPUs that are not free for example, lets no other job wait: it may do so for long.
    """
    refused = [job for job in jobs if job.waits is not None and job.waits.refusal is not None]
    if len(refused) < 2 or not quotas:
        return frozenset()
    coming: Taken = {}
    for job in refused:
        if _is_on_its_way(job, arrived):
            coming = _with(coming, job, quotas)
    by_queue: dict[str, Taken] = {}
    found = set()
    for job in sorted(filter(_waits, refused), key=place):
        taken = by_queue.setdefault(job.queue, coming)
        if job.told not in ("", CODE) or barred(job, quotas, now, services=services) is not None:
            continue
        if resource_quota.shortage(needs(job), quotas, services=services, taken=taken) is not None:
            found.add(job.key)
        else:
            by_queue[job.queue] = _with(taken, job, quotas)
    return frozenset(found)


def _with(taken: Taken, job: JobView, quotas: Iterable[Quota]) -> Taken:
    """What is taken, and what the job asks for."""
    asked = needs(job)
    return {
        each.name: amounts.add(taken.get(each.name, amounts.NOTHING), resource_quota.asked(asked, each))
        for each in quotas
    }


def _waits(job: JobView) -> bool:
    over = job.finished or job.deleting or job.suspended or job.invalid or job.held
    return job.admission is None and not over


def _is_on_its_way(job: JobView, arrived: Callable[[JobKey], int]) -> bool:
    """Whether a job holds room and its pods are still being made."""
    going = job.admission is not None and job.phase == "Admitted" and not job.deleting
    return going and arrived(job.key) < job.charge.get(amounts.PODS, 0)
