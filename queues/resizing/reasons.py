"""Why elastic jobs are not resized, in sentences.

One rule: a sentence has no numbers, so that it stays true until the code changes.
"""

from collections.abc import Collection, Iterable, Mapping

from crds.keys import JobKey
from queues.resizing.values import ElasticJob, Kept, KeptCode

_SENTENCES: Mapping[KeptCode, str] = {
    "Off": "its autoscale is Off, and no waiting job needs its idle growth",
    "Leaving": "some of its workers are on their way out",
    "BelowWish": "it has fewer workers than its owner wants: further ones come by its queue's order",
    "AtMost": "it has all the workers that it may have",
    "QueueHeld": "its queue is on hold",
    "NoRoom": "no step fits into room that is free of every claim",
    "JobsFit": "a waiting job fits into the room, and goes first",
    "Resting": "its last resize is too recent",
    "NotIdleYet": "the room has not been idle for long enough, or other jobs are less fulfilled",
}


def kept(jobs: Iterable[ElasticJob], resized: Collection[JobKey], codes: Mapping[JobKey, KeptCode]) -> tuple[Kept, ...]:
    """Return why each job that is not resized is not. `codes` are the reasons of jobs that could grow one day."""
    found = ((job.key, codes.get(job.key) or _obstacle(job)) for job in jobs if job.key not in resized)
    return tuple(Kept(key, code, _SENTENCES.get(code, "")) for key, code in found)


def _obstacle(job: ElasticJob) -> KeptCode:
    """Return why a job does not grow whatever room there is."""
    if not job.autoscale:
        return "Off"
    if job.leaving:
        return "Leaving"
    return "BelowWish" if job.workers < job.wanted else "AtMost"
