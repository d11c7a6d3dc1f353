"""The jobs for which the drain of a queue waits, and until when at most.

One rule: the times follow from the jobs alone. Later is possible only for a pod that a finalizer keeps, or whose node
does not answer.
"""

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import NamedTuple

from coordinator.cache import pod_grace
from crds import timestamps
from crds.errors import InvalidObject
from crds.torchjob import conditions, torchjob
from crds.torchjob.torchjob import TorchJob
from kube.api import Manifest

DRAINING = "Draining"
"""The reason of the condition Admitted once the pods are deleted, and the beginning of a request to save before."""
MOST_NAMED = 20
"""The most jobs that are named."""


class _Wait(NamedTuple):
    until: datetime
    text: str


def describe(items: Iterable[Manifest], queue: str, longest_grace: float, now: datetime) -> list[str]:
    """Return a line about each job that holds room of a queue, the last to end first, and one about further jobs.

    `items` are all jobs; `longest_grace` is the setting of the coordinator, in seconds.
    """
    waits = sorted(_waits(_jobs(items, queue), longest_grace, now), reverse=True)
    lines = [wait.text for wait in waits[:MOST_NAMED]]
    return lines + ([f"and for {more} jobs that end before"] if (more := len(waits) - MOST_NAMED) > 0 else [])


def _jobs(items: Iterable[Manifest], queue: str) -> Iterable[TorchJob]:
    for item in items:
        try:
            job = torchjob.parse(item)
        except InvalidObject:
            continue
        if job.admission is not None and job.admission.queue == queue and not job.is_finished:
            yield job


def _waits(jobs: Iterable[TorchJob], longest: float, now: datetime) -> Iterable[_Wait]:
    for job in jobs:
        grace = min(pod_grace.longest(job), longest)
        save = min(job.spec.scheduling_policy.checkpoint_seconds, longest - grace)
        since, told = job.status.saving, conditions.find(job.status.conditions, "Admitted")
        if told is not None and told.reason == DRAINING:
            until = now + timedelta(seconds=grace)  # the condition has the time of the admission, not of the deletion
        elif since is not None and since.request.startswith(DRAINING):
            until = since.since + timedelta(seconds=save + grace)
        else:
            until = now + timedelta(seconds=save + grace)
        parts = [f"{save:g} s to save"] if save else []
        times = " and ".join([*parts, f"{grace:g} s of grace"])
        name = f"{job.metadata.namespace}/{job.metadata.name}"
        end = timestamps.format_time(until.timestamp())
        yield _Wait(until, f"it waits for job {name}, until {end} at most ({times})")
