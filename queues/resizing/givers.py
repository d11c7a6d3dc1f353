"""The elastic jobs that can give workers back, and how many each has left while a plan is made.

One rule: a job gives its idle growth first, never goes below its least, and changes its size in its steps.
"""

from collections.abc import Iterable

from crds.keys import JobKey
from queues.resizing.shares import Shares
from queues.resizing.values import ElasticJob


class Giver:
    """A job that can give workers back."""

    __slots__ = ("idle", "job", "paid", "rank", "workers")

    def __init__(self, job: ElasticJob, rank: int) -> None:
        """`rank` is the job's place among equally fulfilled jobs."""
        whole = max(0, job.workers - job.least) // job.step * job.step
        self.job = job
        self.rank = rank
        self.workers = job.workers
        self.idle = min(whole, job.idle // job.step * job.step)
        """The idle growth that can go."""
        self.paid = whole - self.idle if job.autoscale else 0
        """The further workers above the least that can go."""

    @property
    def fulfilment(self) -> float:
        """The part that the job has of what it may have beyond its least."""
        return fulfilment(self.job, self.workers)

    @property
    def given(self) -> int:
        """How many workers the job gives."""
        return self.job.workers - self.workers


def fulfilment(job: ElasticJob, workers: int) -> float:
    """Return which part a job has of what it may have beyond its least, with a number of workers."""
    return (workers - job.least) / max(1, job.most - job.least)


def rank(job: ElasticJob, shares: Shares) -> tuple[float, float, JobKey]:
    """Return the order in which equally fulfilled jobs grow: those with smaller workers first, then the older ones.

    They give back in the opposite order.
    """
    return shares.size(job.unit), job.submitted, job.key


def by_queue(jobs: Iterable[ElasticJob], shares: Shares) -> dict[str, list[Giver]]:
    """Return the jobs that can give workers back, by queue. A job with workers on their way out is left alone."""
    able = [
        job
        for job in jobs
        if not job.busy and not job.leaving and job.workers > job.least and (job.idle or job.autoscale)
    ]
    found: dict[str, list[Giver]] = {}
    for place, job in enumerate(sorted(able, key=lambda job: rank(job, shares))):
        giver = Giver(job, place)
        if giver.idle or giver.paid:
            found.setdefault(job.queue, []).append(giver)
    return found
