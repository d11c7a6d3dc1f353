"""The handling of a job whose objects a ResourceQuota of its namespace refuses.

One rule: pure. The patterns match the messages of Kubernetes' admission plugin ResourceQuota, and no other refusal.
"""

import re
from collections.abc import Iterable
from datetime import datetime

from crds.torchjob.resource_quota import UNSPECIFIED
from crds.torchjob.status import QueueStatus, QuotaRefusal, TorchJobStatus
from crds.torchjob.torchjob import TorchJob
from reconcilers.plan import progress, status
from reconcilers.pods import task_members
from reconcilers.values import OverQuota
from reconcilers.views.pod_view import PodView

PAUSE = 5.0
"""The seconds of the first pause after a refusal: the coordinator sees the ResourceQuota a moment later."""
UNSPECIFIED_PAUSE = 60.0
"""The seconds of the first pause of a job whose template lacks what a ResourceQuota demands: only a person helps it."""
LONGEST_PAUSE = 600.0
MOST_LIMITS, LONGEST_LIMIT, LONGEST_NAME = 64, 64, 253
"""The limits of what a status stores of a refusal."""

_EXCEEDED = re.compile(r"exceeded quota: ([^,]+), requested: .*?, used: .*?, limited: ([^;\s]*)")
_UNSPECIFIED = re.compile(r"failed quota: ([^:]+): must specify (.*)")
_UNKNOWN = re.compile(r"status unknown for quota: ([^,]+), resources: ([^;\s]*)")
_SCOPES = re.compile(r"insufficient quota to (?:match these scopes|consume): ")
_SPECIFY = re.compile(r"([^;:\s]+) for: ([^;]*)")


def parse_refusal(message: str) -> OverQuota | None:
    """Return the facts about a ResourceQuota in an API server's refusal; None if the refusal has another reason."""
    if refusal := _EXCEEDED.search(message):
        limits = (limit.partition("=") for limit in refusal[2].split(","))
        return _over_quota(refusal[1], [(name, hard) for name, _, hard in limits], message[refusal.start() :])
    if refusal := _UNSPECIFIED.search(message):
        lacking = [(name, UNSPECIFIED + containers.strip()) for name, containers in _SPECIFY.findall(refusal[2])]
        return _over_quota(refusal[1], lacking, message[refusal.start() :])
    if refusal := _UNKNOWN.search(message):
        return _over_quota(refusal[1], [(name, "") for name in refusal[2].split(",")], message[refusal.start() :])
    refusal = _SCOPES.search(message)
    return OverQuota("", {}, message[refusal.start() :]) if refusal else None


def _over_quota(name: str, limits: Iterable[tuple[str, str]], message: str) -> OverQuota:
    hard_limits = [(resource[:LONGEST_NAME], hard[:LONGEST_LIMIT]) for resource, hard in limits if resource][
        :MOST_LIMITS
    ]
    return OverQuota(name.strip()[:LONGEST_NAME], dict(hard_limits), message)


def may_run(job: TorchJob, pods: Iterable[PodView]) -> bool:
    """Return whether the job can run with its existing pods.

    Every task of the begun stages needs its minimum of pods (`minMembers`). Auxiliary tasks count only if there are no
    other tasks.
    """
    existing = [pod for pod in pods if not pod.deleting and pod.phase != "Failed"]
    job_progress = progress.assess(job, existing)
    present = [task_type for stage in job_progress.begun for task_type in stage.tasks]
    needed = [
        task_type
        for task_type in task_members.training_tasks(job.spec, present) or present
        if task_type not in job_progress.passed
    ]
    return all(_has_least(job, task_type, existing) for task_type in needed)


def _has_least(job: TorchJob, task_type: str, pods: Iterable[PodView]) -> bool:
    count = sum(pod.task == task_type.lower() and not progress.is_outdated(job, pod) for pod in pods)
    return count >= min(job.spec.members(task_type), job.spec.tasks[task_type].num_tasks)


def count_refusal(job: TorchJob, refused: OverQuota) -> QueueStatus:
    """Return `status.queue` with a refusal counted.

    The refusal counts as a repetition unless the job or a limit has changed since: several ResourceQuotas, and several
    limits of one ResourceQuota, may refuse the same job in any order.
    """
    queue = job.status.queue or QueueStatus()
    before, generation = queue.refused_by, job.metadata.generation
    is_repetition = before is not None and before.generation == generation and not _is_changed(before, refused)
    times = before.times + 1 if before is not None and is_repetition else 1
    refusal = QuotaRefusal(name=refused.quota, hard=dict(refused.hard), generation=generation, times=times)
    return queue.model_copy(update={"refused_by": refusal})


def _is_changed(before: QuotaRefusal, refused: OverQuota) -> bool:
    """Return whether a limit that refused the job before has another value now."""
    same = before.name == refused.quota
    return same and any(before.hard.get(name, hard) != hard for name, hard in refused.hard.items())


def send_back(job: TorchJob, refusal: QuotaRefusal | None, message: str, now: datetime) -> TorchJobStatus:
    """Return the status of a job that waits again, outside the order of its queue, until the ResourceQuota has room for
    it.

    The job waits at least for a pause, which doubles while the same limits refuse it: the additions of an API server to
    the job's pods are not known in advance.
    """
    times = refusal.times if refusal is not None else 1
    is_lacking = refusal is not None and any(hard.startswith(UNSPECIFIED) for hard in (refusal.hard or {}).values())
    first = UNSPECIFIED_PAUSE if is_lacking else PAUSE
    refused_by = refusal or QuotaRefusal(generation=job.metadata.generation, times=1)
    queue = status.back_off(job, now, status.pause(job, times, first, LONGEST_PAUSE), refused_by=refused_by)
    return status.send_back(job, status.NAMESPACE_QUOTA, message, queue, now)
