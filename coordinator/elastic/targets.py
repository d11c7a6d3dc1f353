"""The leader's decisions about the target of one job, from the newest plan of resizes.

One rule: pure. A target that no worker process has begun with is judged anew at each look, whoever wrote it. A target
that a worker process has begun to carry out is left alone, unless others need more idle workers: those of a growth, or
further ones of a job that gives back already, whose target becomes smaller.

    target                          newest plan                 decision
    none                            resizes the job             write the target
    more workers than granted       lets it grow so far         the store grants the growth
    more workers than granted       lets it grow less far       write the smaller target
    more workers than granted       does not let it grow        withdraw the target
    fewer workers than granted      a waiting job needs them    -
    fewer workers than granted      asks for more               write the smaller target
    fewer workers than granted      otherwise, or gives less    withdraw or raise the target, though not at once
    any, for too long               any                         withdraw the target, and say so
    what the job has                resizes the job             write the target
    what its owner wants at least   any other                   withdraw the target
    void                            any                         - (a worker process removes it)

A job keeps its size when its target is withdrawn: if it has more workers than its owner wants, the size that it has
becomes the target.
"""

from collections.abc import Collection
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TypeGuard

from coordinator.cache.autoscaling import Autoscaling
from coordinator.cache.views import JobView
from crds.keys import JobKey
from crds.torchjob.status import GAIN_TOO_SMALL, GIVE_BACK, IDLE, MOST_AT_ONCE, Target
from queues.resizing.values import Resize, digest

CARRY_OUT_SECONDS = 120.0
"""How long a target may be there before a worker process begins with it."""
STANDS_SECONDS = 10.0
"""How long a target to give back stands at least: as long as a change takes. Of several waiting jobs each plan may
serve another one, and a target that follows every plan is never carried out."""


@dataclass(frozen=True, slots=True)
class Decision:
    """The decision about the target of one job; nothing by default."""

    writes: bool = False
    target: Target | None = None
    """The target that is written; None: the target is removed."""
    grow: int = 0
    """How many workers the store is to add."""
    late: bool = False
    """Whether the target is withdrawn because no worker process has begun with it in time."""


NOTHING_TO_DO = Decision()


def decide(job: JobView, resize: Resize | None, needed: Collection[JobKey], now: float) -> Decision:
    """Return the decision about the target of a job. `resize` is the job's resize in the newest plan, and `needed`
    the jobs that still have to give back."""
    scaling = job.autoscaling
    if scaling is None or scaling.void or job.finished or job.deleting:
        return NOTHING_TO_DO
    if job.admission is None or job.admission.workers is None:
        return Decision(writes=True) if scaling.target is not None and not job.stopped else NOTHING_TO_DO
    if scaling.change == "Resizing" and not (resize is not None and _may_ask_back(scaling, resize)):
        return NOTHING_TO_DO
    if resize is not None and not _is_written(scaling.target, resize, job.admission.workers):
        if _stands(scaling.target, now) and resize.workers > scaling.target.workers:
            return NOTHING_TO_DO
        return Decision(writes=True, target=_target(job, resize, now))
    return _judge(job, scaling, job.admission.workers, resize, job.key in needed, now)


def _may_ask_back(scaling: Autoscaling, resize: Resize) -> bool:
    """Return whether a job gives workers back although its number of workers changes: it grows, or it gives back
    already and others need more."""
    return resize.reason == GIVE_BACK and (not scaling.leaving or _gives_more(scaling.target, resize))


def _gives_more(target: Target | None, resize: Resize) -> TypeGuard[Target]:
    """Return whether a job that gives workers back is to give more of them."""
    return target is not None and target.reason == resize.reason == GIVE_BACK and resize.workers < target.workers


def go_back(job: JobView, workers: int, message: str, now: float) -> Decision:
    """Return the decision for a job that its last workers made slower: the job returns to its previous size, though not
    below the number that its owner wants."""
    scaling = job.autoscaling
    granted = job.admission.workers or 0 if job.admission is not None else 0
    size, wanted = max(workers, _wanted(job)), _wanted(job)
    if scaling is None or scaling.void or scaling.change or size >= granted:
        return NOTHING_TO_DO
    if scaling.target is not None and scaling.target.workers <= size:
        return NOTHING_TO_DO
    found = Target(workers=size, reason=GAIN_TOO_SMALL, message=message, since=_moment(now), wish=wanted)
    return Decision(writes=True, target=found)


def _judge(
    job: JobView, scaling: Autoscaling, granted: int, resize: Resize | None, is_needed: bool, now: float
) -> Decision:
    """Return the decision about a target that the newest plan does not replace."""
    target = scaling.target
    if target is None:
        return NOTHING_TO_DO
    withdraw = Decision(writes=True, target=withdrawn(job, granted, now))
    is_late = now - target.since.timestamp() > CARRY_OUT_SECONDS
    if target.workers == granted:
        return Decision(writes=True) if _wanted(job) >= granted else NOTHING_TO_DO
    if is_late:
        return replace(withdraw, late=True)
    if target.workers > granted:
        return Decision(grow=target.workers - granted) if resize is not None else withdraw
    is_wanted = target.reason != GIVE_BACK or is_needed or resize is not None or _stands(target, now)
    return NOTHING_TO_DO if is_wanted else withdraw


def withdrawn(job: JobView, granted: int, now: float) -> Target | None:
    """Return the target with which a job keeps the size that it has; None if its owner wants no fewer workers."""
    wanted = _wanted(job)
    if granted <= wanted:
        return None
    scaling = job.autoscaling
    since = scaling.resized_at if scaling is not None and scaling.resized_at else now
    return Target(workers=granted, reason=IDLE, since=_moment(since), wish=wanted)


def _stands(target: Target | None, now: float) -> TypeGuard[Target]:
    """Return whether a target to give back is too young to be withdrawn or raised."""
    return target is not None and target.reason == GIVE_BACK and now - target.since.timestamp() < STANDS_SECONDS


def _is_written(target: Target | None, resize: Resize, granted: int) -> bool:
    """Return whether a target agrees with a plan; the target may ask for less growth."""
    if target is None or target.reason != resize.reason:
        return False
    return target.workers == resize.workers or granted < target.workers < resize.workers


def _target(job: JobView, resize: Resize, now: float) -> Target:
    before = job.autoscaling.target if job.autoscaling is not None else None
    # The job that was served before still needs the nodes of these workers.
    first = before.victims if _gives_more(before, resize) else ()
    return Target(
        workers=resize.workers,
        reason=resize.reason,
        message=resize.message,
        recipient=digest(resize.for_key) if resize.for_key is not None else "",
        victims=tuple(dict.fromkeys((*first, *resize.victims)))[:MOST_AT_ONCE],
        since=_moment(now),
        wish=_wanted(job),
    )


def _wanted(job: JobView) -> int:
    return job.workers.wanted if job.workers is not None else 0


def _moment(now: float) -> datetime:
    return datetime.fromtimestamp(int(now), UTC)
