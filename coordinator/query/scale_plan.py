"""The document of a plan of resizes: which elastic jobs would grow, which would give back to whom, and which would not.

One rule: names are written as in Kubernetes. The plan comes from the function with which the leader plans.
"""

from collections.abc import Iterable, Mapping

from coordinator.query.documents import job_name
from coordinator.query.questions import Document
from crds.keys import JobKey
from queues.resizing.values import ElasticJob, Kept, Plan, Resize

SENTENCES = {
    "NotRunning": "the job does not run",
    "Cancelled": "its owner cancels it",
    "Suspended": "its owner suspends it",
    "Resizing": "its number of workers changes",
    "Restarting": "pods of it restart, or wait to be restarted",
    "ScaleRequest": "a request of its owner is under way",
    "QueueDrained": "its queue drains",
    "NotCarriedOut": "no worker process has begun with its last change in time",
    "LeavesLate": "workers that it gives back do not end in time",
}
"""What keeps a job from any change (`coordinator.elastic.elastic_jobs`), for people."""


def document(
    plan: Plan,
    jobs: Iterable[ElasticJob],
    obstacles: Mapping[JobKey, tuple[str, str]],
    messages: Mapping[JobKey, str],
    domains: Mapping[JobKey, str],
    *,
    on: bool,
    leading: bool,
) -> Document:
    """Return a plan as `torchq scale plan` shows it.

    `obstacles` are the codes and sentences of the reasons that keep jobs from growing, `messages` are the messages of
    their targets, and `domains` are the racks, or other nodes with one label, in which their pods must be.
    """
    by_key = {job.key: job for job in jobs}
    kept = {reason.key: reason for reason in plan.kept}
    resizes = {resize.key: resize for resize in plan.resizes}
    return {
        "autoscale": "on" if on else "off",
        "fromLeader": leading,
        "resizes": [_resize(resize, by_key[resize.key]) for resize in plan.resizes],
        "claims": [{"queue": queue, "job": job_name(key)} for queue, key in sorted(plan.claims.items())],
        "unchanged": [
            _unchanged(job, kept.get(key), obstacles.get(key, ("", "")), messages.get(key, ""), domains.get(key, ""))
            for key, job in sorted(by_key.items())
            if key not in resizes
        ],
    }


def _resize(resize: Resize, job: ElasticJob) -> Document:
    return {
        **_size(job),
        "to": resize.workers,
        "reason": resize.reason,
        "for": None if resize.for_key is None else job_name(resize.for_key),
        "forQueue": resize.for_queue,
        "message": resize.message,
    }


def _unchanged(job: ElasticJob, kept: Kept | None, obstacle: tuple[str, str], message: str, domain: str) -> Document:
    code, sentence = (kept.code, kept.sentence) if kept is not None else ("", "")
    if job.leaving and message:
        code, sentence = "Leaving", message
    elif job.busy:
        code, sentence = job.busy, SENTENCES.get(job.busy, sentence)
    elif obstacle[0] and code in ("", "Resting"):
        code, sentence = obstacle
    elif code == "NoNodes" and domain:
        sentence = f"{sentence}; they must be in {domain}"
    return {**_size(job), "code": code, "message": sentence}


def _size(job: ElasticJob) -> Document:
    return {
        "job": job_name(job.key),
        "uid": job.key.uid,
        "queue": job.queue,
        "workers": job.workers,
        "wanted": job.wanted,
        "idle": job.idle,
        "leaving": job.leaving,
        "min": job.least,
        "max": job.most,
    }
