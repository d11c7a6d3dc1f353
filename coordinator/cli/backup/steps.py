"""The steps for each object of a backup, by the objects that the cluster has.

One rule: pure. An object that the restore did not create is not changed. An object that a restore created is
completed, so that a second run continues where the first run ended.

A finished job is created suspended, then gets its end, then its old `spec.suspend`. The restored job is suspended until
its end is written; from then on, the job is finished. So no worker ever runs the finished job, whenever the command is
killed.

Another job with code is created on hold, then its code is kept with the new job as the owner, then it is let go.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from coordinator.cli.backup.saved import Backup, SavedJob, SavedObject
from crds import labels, timestamps
from crds.torchjob.conditions import FINISHED
from kube.api import Manifest

Action = Literal["create", "finish", "resume", "release", "keep", "skip", "lack"]
"""create: create it. finish: write the end of a finished job. resume: give it its old `spec.suspend`. release: keep its
code, and let it go. keep: the object exists. skip: it is not to exist. lack: its code is missing. A finished job needs
the first three, and its end for its newest spec at last."""
IDLE: tuple[Action, ...] = ("keep", "skip", "lack")
"""The actions that change nothing."""
AGAIN, PAUSED, HELD, KEPT = "waits again", "stays suspended", "stays on hold", "exists: left as it is"
EARLIER = "restored earlier"


JobName = tuple[str, str]
"""The namespace and the name of a job."""


@dataclass(frozen=True, slots=True)
class Step:
    """The step for one object."""

    action: Action
    saved: SavedObject
    said: str
    """What becomes of the object, for people."""


def plan(
    backup: Backup,
    now: datetime,
    queues: Mapping[str, Manifest],
    jobs: Mapping[JobName, Manifest],
    lacking: Collection[JobName],
    models: Collection[JobName] = (),
) -> Iterator[Step]:
    """Yield a step for each object: the queues first, then the models, then the jobs in the order of their creation.

    `queues` are the specs of the queues that the cluster has, by name, and `jobs` its jobs. `lacking` names the jobs
    whose code neither the backup nor the cluster has, and `models` the ModelVersions that the cluster has.
    """
    for queue in backup.queues:
        yield judge_queue(queue, queues.get(queue.name))
    for model in backup.models:
        there = (model.namespace, model.name) in models
        yield Step("keep", model, KEPT) if there else Step("create", model, "restored")
    for job in backup.jobs:
        key = job.namespace, job.name
        yield judge_job(job, jobs.get(key), now, has_code=key not in lacking)


def awaits_code(stored: Manifest) -> bool:
    """Return whether a job of the cluster is on hold until its code is there."""
    return labels.CODE_PENDING in (stored["metadata"].get("annotations") or {})


def judge_queue(queue: SavedObject, spec: Manifest | None) -> Step:
    """Return the step for a queue; `spec` is the spec of the queue in the cluster, None if the queue does not exist."""
    if spec is None:
        return Step("create", queue, "restored")
    differs = "" if spec == queue.body["spec"] else ", with another spec than in the backup"
    return Step("keep", queue, KEPT + differs)


def judge_job(job: SavedJob, stored: Manifest | None, now: datetime, *, has_code: bool = True) -> Step:
    """Return the step for a job; `stored` is the job of that name in the cluster, None if there is no such job."""
    if stored is None:
        return _judge_absent(job, now, has_code=has_code)
    metadata, status, suspended = stored["metadata"], stored.get("status") or {}, bool(stored["spec"].get("suspend"))
    finished = status.get("phase") in FINISHED
    if metadata.get("deletionTimestamp") is not None:
        return Step("keep", job, "exists and is being deleted: restore it again when it is gone")
    if (metadata.get("annotations") or {}).get(labels.RESTORED, "") != job.uid:
        return Step("keep", job, KEPT)
    if job.status is None:
        if finished or not awaits_code(stored):
            return Step("keep", job, EARLIER)
        return Step("release", job, _waits(job)) if has_code else Step("lack", job, f"stays on hold: {_lack(job)}")
    if finished and suspended and not job.suspend:
        return Step("resume", job, _ended(job))
    if finished:
        # No worker looks at a finished job without pods again, so its status has to describe its newest spec.
        observed = status.get("observedGeneration") == metadata.get("generation")
        return Step("keep", job, EARLIER) if observed else Step("finish", job, _ended(job))
    if suspended and not status.get("admission"):
        return Step("finish", job, _ended(job))
    return Step("keep", job, "exists: it was resumed before it got its end, and runs as a new job")


def _judge_absent(job: SavedJob, now: datetime, *, has_code: bool) -> Step:
    if job.deleting:
        return Step("skip", job, "not restored: it was being deleted")
    if job.expires is not None and job.expires <= now:
        end = timestamps.format_time(job.expires)
        return Step("skip", job, f"not restored: its ttlSecondsAfterFinished ended at {end}")
    if job.status is not None:
        return Step("create", job, _ended(job))
    return Step("create", job, _waits(job)) if has_code else Step("lack", job, f"not restored: {_lack(job)}")


def _waits(job: SavedJob) -> str:
    return PAUSED if job.suspend else HELD if job.hold else AGAIN


def _lack(job: SavedJob) -> str:
    return f"its code ({job.code}) is neither in the backup nor in the cluster"


def _ended(job: SavedJob) -> str:
    return f"restored as it ended, {(job.status or {}).get('phase')}"
