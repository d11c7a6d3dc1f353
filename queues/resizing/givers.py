"""The elastic jobs that can give workers back, and how many each has left while a plan is made.

One rule: a job gives its idle growth first, never goes below its least, and changes its size in its steps.

A queue's share is a part of the whole pool, by weight among the queues that use it or wait. The compared resources are
the resources of prices (`queues.picking.prices`), and of several resources the one of which a queue has the largest
part; where all jobs cost the same, the resources of the pool.
"""

from collections.abc import Iterable
from functools import cached_property

from crds.keys import JobKey
from crds.resources.amounts import Amounts
from queues.picking.prices import Prices
from queues.resizing.room import Room
from queues.resizing.values import ElasticJob


class Shares:
    """The amounts that queues use beyond their shares, as parts of the pool."""

    def __init__(self, room: Room, prices: Prices) -> None:
        """`room` belongs to the caller, who may change the room."""
        self._room = room
        counted = prices.whole or room.capacity
        self._capacity = {name: amount for name, amount in counted.items() if amount > 0}

    def above(self, queue: str) -> float:
        """Return how far a queue is above its share with all that its running jobs use."""
        return self.size(self._room.held(queue)) - self._share(queue)

    def paid_above(self, queue: str) -> float:
        """Return how far a queue is above its share with only the room that it has paid for."""
        held, idle = self._room.held(queue), self._room.idle(queue)
        paid = {name: held.get(name, 0) - idle.get(name, 0) for name in self._capacity}
        return self.size(paid) - self._share(queue)

    def size(self, used: Amounts) -> float:
        """Return an amount as a part of the pool."""
        return max([used.get(name, 0) / most for name, most in self._capacity.items()], default=0.0)

    def _share(self, queue: str) -> float:
        return self._room.queues[queue].spec.weight / self._weights

    @cached_property
    def _weights(self) -> int:
        """The sum of the weights of the queues that use room or wait."""
        queues = self._room.queues.values()
        return sum(queue.spec.weight for queue in queues if queue.first is not None or any(queue.used.values())) or 1


class Giver:
    """A job that can give workers back."""

    __slots__ = ("idle", "job", "paid", "rank", "workers")

    def __init__(self, job: ElasticJob, rank: int) -> None:
        """`rank` is the job's place among equally fulfilled jobs."""
        self.job = job
        self.rank = rank
        self.workers = job.workers - job.leaving
        whole = max(0, self.workers - job.least) // job.step * job.step
        self.idle = min(whole, max(0, job.idle - job.leaving) // job.step * job.step)
        """The idle growth that can go."""
        self.paid = whole - self.idle if _may_give_paid(job) else 0
        """The further workers above the least that can go."""

    @property
    def fulfilment(self) -> float:
        """The part that the job has of the workers between its least and its most number."""
        return fulfilment(self.job, self.workers)

    @property
    def given(self) -> int:
        """How many workers the job gives, with those that are on their way out."""
        return self.job.workers - self.workers

    @property
    def asked(self) -> int:
        """How many workers the job is asked for by this plan."""
        return self.given - self.job.leaving


def _may_give_idle(job: ElasticJob) -> bool:
    is_giving = not job.leaving or job.leaving_for is not None
    return job.idle > job.leaving and is_giving and (job.yields or not job.busy)


def _may_give_paid(job: ElasticJob) -> bool:
    return job.autoscale and not job.busy and not job.leaving


def fulfilment(job: ElasticJob, workers: int) -> float:
    """Return the part that a job has of the workers between its least and its most number, for a number of workers."""
    return (workers - job.least) / max(1, job.most - job.least)


def rank(job: ElasticJob, shares: Shares) -> tuple[float, float, JobKey]:
    """Return the order in which equally fulfilled jobs grow: jobs with smaller workers first, then older jobs.

    Jobs give back in the opposite order.
    """
    return shares.size(job.unit), job.submitted, job.key


def by_queue(jobs: Iterable[ElasticJob], shares: Shares) -> dict[str, list[Giver]]:
    """Return the jobs that can give workers back, by queue. A job that gives workers to another job already can give
    more of its idle growth, and nothing else; a job with other workers on their way out is left alone."""
    able = [job for job in jobs if job.workers > job.least and (_may_give_idle(job) or _may_give_paid(job))]
    found: dict[str, list[Giver]] = {}
    for place, job in enumerate(sorted(able, key=lambda job: rank(job, shares))):
        giver = Giver(job, place)
        if giver.idle or giver.paid:
            found.setdefault(job.queue, []).append(giver)
    return found
