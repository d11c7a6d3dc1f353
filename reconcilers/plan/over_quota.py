"""A job that the API server refuses for a ResourceQuota of its namespace.

One rule: pure. The words are those of Kubernetes' admission plugin ResourceQuota; any other refusal is none of these.
"""

import re
from collections.abc import Iterable
from datetime import datetime, timedelta

from crds.torchjob.status import QueueStatus, QuotaRefusal, TorchJobStatus
from crds.torchjob.torchjob import TorchJob
from reconcilers.plan import progress, status
from reconcilers.pods import task_members
from reconcilers.values import OverQuota
from reconcilers.views.pod_view import PodView

PAUSE = 5.0
"""Seconds of the first pause after a refusal: the coordinator sees the ResourceQuota a moment later."""
LONGEST_PAUSE = 600.0
MOST_LIMITS, LONGEST_LIMIT, LONGEST_NAME = 64, 64, 253
"""What a status can hold of a refusal."""

_EXCEEDED = re.compile(r"exceeded quota: ([^,]+), requested: .*?, used: .*?, limited: ([^;\s]*)")
_UNSPECIFIED = re.compile(r"failed quota: ([^:]+): must specify (.*)")
_UNKNOWN = re.compile(r"status unknown for quota: ([^,]+), resources: ([^;\s]*)")
_SCOPES = re.compile(r"insufficient quota to (?:match these scopes|consume): ")
_SPECIFY = re.compile(r"([^;:\s]+) for: [^;]*")


def read(said: str) -> OverQuota | None:
    """What an API server's refusal says of a ResourceQuota; None if it was refused for anything else."""
    if found := _EXCEEDED.search(said):
        limits = (each.partition("=") for each in found[2].split(","))
        return _of(found[1], [(name, hard) for name, _, hard in limits], said[found.start() :])
    if found := _UNSPECIFIED.search(said):
        return _of(found[1], [(name, "") for name in _SPECIFY.findall(found[2])], said[found.start() :])
    if found := _UNKNOWN.search(said):
        return _of(found[1], [(name, "") for name in found[2].split(",")], said[found.start() :])
    found = _SCOPES.search(said)
    return OverQuota("", {}, said[found.start() :]) if found else None


def _of(name: str, limits: Iterable[tuple[str, str]], words: str) -> OverQuota:
    kept = [(each[:LONGEST_NAME], hard[:LONGEST_LIMIT]) for each, hard in limits if each][:MOST_LIMITS]
    return OverQuota(name.strip()[:LONGEST_NAME], dict(kept), words)


def may_run(job: TorchJob, pods: Iterable[PodView]) -> bool:
    """Whether the pods that are there are enough for the job to run with: every task of the stages that have begun has
    its least number of pods (`minMembers`). Auxiliary tasks count where there are no others."""
    there = [pod for pod in pods if not pod.deleting and pod.phase != "Failed"]
    found = progress.of(job, there)
    present = [each for stage in found.begun for each in stage.tasks]
    wanted = [each for each in task_members.training(job.spec, present) or present if each not in found.passed]
    return all(_has_least(job, each, there) for each in wanted)


def _has_least(job: TorchJob, task_type: str, pods: Iterable[PodView]) -> bool:
    there = sum(pod.task == task_type.lower() and not progress.outdated(job, pod) for pod in pods)
    return there >= min(job.spec.members(task_type), job.spec.tasks[task_type].num_tasks)


def noted(job: TorchJob, refused: OverQuota) -> QueueStatus:
    """What `status.queue` remembers of a refusal. It counts as a repetition unless the job or a limit has changed
    since: several ResourceQuotas, and several limits of one, may refuse the same job in any order."""
    known = job.status.queue or QueueStatus()
    before, generation = known.refused_by, job.metadata.generation
    again = before is not None and before.generation == generation and not _is_changed(before, refused)
    times = before.times + 1 if before is not None and again else 1
    refusal = QuotaRefusal(name=refused.quota, hard=dict(refused.hard), generation=generation, times=times)
    return known.model_copy(update={"refused_by": refusal})


def _is_changed(before: QuotaRefusal, refused: OverQuota) -> bool:
    """Whether a limit that refused the job before refuses it with another number now."""
    same = before.name == refused.quota
    return same and any(before.hard.get(name, hard) != hard for name, hard in refused.hard.items())


def sent_back(job: TorchJob, refusal: QuotaRefusal | None, message: str, now: datetime) -> TorchJobStatus:
    """It waits again, outside the order of its queue until the ResourceQuota holds it; for a pause at least, which
    doubles while the same limits refuse the job: what an API server adds to its pods is not known beforehand."""
    times = refusal.times if refusal is not None else 1
    seconds = min(LONGEST_PAUSE, PAUSE * 2.0 ** min(times - 1, 64)) * (1.0 - status.jitter(job, times))
    queue = QueueStatus(
        name=job.queue,
        since=now,
        not_before=now + timedelta(seconds=seconds),
        tries=status.tried(job, now),
        refused_by=refusal or QuotaRefusal(generation=job.metadata.generation, times=1),
    )
    return status.idle(job, "Queued", status.NAMESPACE_QUOTA, message, now).model_copy(update={"queue": queue})
