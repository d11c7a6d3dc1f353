"""Idle growth: when a job may grow by itself, what it may give back, and for which jobs.

One rule: everything is judged from the cluster alone, after every call.
"""

import re
from collections.abc import Iterator, Mapping, Sequence

from crds import timestamps
from tests.faults.readings import Job, Pod

_HEAD = re.compile(r"\bdefault/([a-z-]+)")
"""The name of the job that a target names."""


class IdleWatch:
    """The jobs that the coordinator resizes, and what has happened to them."""

    def __init__(self) -> None:
        self._before: dict[str, Job] = {}
        """Each job as it was at the last look, by uid."""
        self._given: dict[str, dict[str, int]] = {}
        """The jobs for which each job has given workers back, with the generation of the job at that time."""
        self._wrong: list[str] = []
        """The violations that cannot be repaired."""

    def problems(self, jobs: Mapping[str, Job], pods: Sequence[Pod]) -> Iterator[str]:
        """Yield what is wrong with the jobs that the coordinator resizes."""
        running = {pod.name for pod in pods if pod.phase == "Running"}
        by_name = {job.name: job for job in jobs.values()}
        for uid, job in jobs.items():
            before = self._before.get(uid)
            if before is not None and before is not job and job.sizes.autoscale:
                self._wrong += [*_hasty(before, job), *_forced(before, job, running)]
                self._give(uid, before, job, by_name)
            if job.finished:
                self._wrong += _in_vain(job, self._given.pop(uid, {}), by_name)
        self._before = dict(jobs)
        yield from self._wrong

    def _give(self, uid: str, before: Job, job: Job, by_name: Mapping[str, Job]) -> None:
        """Record the jobs for which a job names victims."""
        if job.sizes.victims <= before.sizes.victims or job.sizes.target.get("reason") != "GiveBack":
            return
        for name in _HEAD.findall(job.sizes.target.get("message", "")):
            if name in by_name:
                self._given.setdefault(uid, {})[name] = by_name[name].spec_generation


def _hasty(before: Job, job: Job) -> Iterator[str]:
    """Yield a job that has grown by itself soon after its last change."""
    grown = job.sizes.idle > before.sizes.idle and before.attempt == job.attempt
    ended = before.sizes.resized.get("at")
    if grown and ended is not None:
        since = timestamps.parse_seconds(job.sizes.scaling["since"]) - timestamps.parse_seconds(ended)
        if since < job.sizes.every - 1:
            yield f"job {job.name} grows by itself {since:.0f} s after its last change"


def _forced(before: Job, job: Job, running: set[str]) -> Iterator[str]:
    """Yield a job that loses running workers which its owner wants, although no other job gets them."""
    named, sizes = job.sizes.victims - before.sizes.victims, job.sizes
    left = (sizes.granted or 0) - len(sizes.victims)
    if named & running and left < sizes.wish and sizes.target.get("reason") != "GiveBack":
        yield f"job {job.name} loses workers that its owner wants"


def _in_vain(job: Job, heads: Mapping[str, int], by_name: Mapping[str, Job]) -> Iterator[str]:
    """Yield jobs that did not start although `job`, which is over, gave them its workers."""
    for name, generation in heads.items():
        head = by_name.get(name)
        if head is not None and not head.attempt and head.spec_generation == generation:
            yield f"job {job.name} gave workers back to {name}, which did not go"
