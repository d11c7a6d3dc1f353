"""Scenarios in which a third of the jobs are elastic: from a trace, or random with the numbers of a trace.

One rule: an elastic job has the same work whatever its size is. Twice the workers need half the time.
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from bench.errors import BenchError
from bench.support import scenarios
from bench.support.arena import GPU
from bench.support.scenarios import WEIGHTS, Job, Scenario, timed_job
from crds.resources import amounts
from crds.resources.amounts import Amounts
from queues.values import QueueSpec

LEAST, WANTED, MOST = 1, 2, 8
"""The workers of an elastic job. Its owner asks for WANTED of them."""
_EVERY = 3
"""Each job of this number with GPUs is elastic."""
_POOL = 256
_MEDIAN, _SPREAD, _LONGEST = 485.0, 2.5, 172_800.0
"""The run times: log-normal, with the median of the openb trace and about its spread, two days at most."""
_DAY = 86_400.0
_SIZES = (1, 1, 1, 1, 1, 1, 1, 2, 4, 8)


def trace(path: Path, room: float) -> Scenario:
    """Return the tasks of a CSV file, without the tenth that was submitted first. Raises BenchError.

    In the openb trace, 10 of its 13 million seconds see a tenth of its tasks. The pool is the part `room` of the room
    that the jobs would use at once, and has room for the largest job.
    """
    found = scenarios.trace(path, room)
    late = found.jobs[len(found.jobs) // 10 :]
    if not late:
        raise BenchError(f"trace {path}: too few tasks")
    begin = late[0].entry.submitted
    moved = [Job(replace(job.entry, submitted=job.entry.submitted - begin), job.seconds) for job in late]
    jobs = _with_elastic(moved)
    pool = scenarios.pool_of(jobs, room)
    return Scenario(_queues(dict.fromkeys(sorted({job.entry.queue for job in jobs}), 1), pool), pool, jobs)


def mixed(jobs: int, load: float, seed: int) -> Scenario:
    """Return random jobs of four tenants on 256 GPUs, with the sizes and run times of the openb trace.

    Jobs come in waves of a day. `load` is the part of the pool that they need if it is never idle.
    """
    draw = random.Random(seed)
    sizes = [draw.choice(_SIZES) for _ in range(jobs)]
    seconds = [min(_LONGEST, draw.lognormvariate(0.0, _SPREAD) * _MEDIAN) for _ in range(jobs)]
    work = sum(
        size * time * (WANTED if n % _EVERY == 0 else 1)
        for n, (size, time) in enumerate(zip(sizes, seconds, strict=True))
    )
    length = work / (_POOL * load)
    moments = sorted(_moment(draw, length) for _ in range(jobs))
    queues = draw.choices(list(WEIGHTS), k=jobs)
    plain = [
        timed_job(queue, number, moment, {GPU: size}, time)
        for number, (queue, moment, size, time) in enumerate(zip(queues, moments, sizes, seconds, strict=True))
    ]
    pool = {GPU: _POOL}
    return Scenario(_queues(WEIGHTS, pool), pool, _with_elastic(plain))


def _moment(draw: random.Random, length: float) -> float:
    """Return a moment within a length. Three of four jobs come in the first half of a day."""
    day, second = divmod(draw.uniform(0.0, length), _DAY)
    afternoon = draw.random() >= 0.75
    moment = day * _DAY + (second + _DAY * afternoon) / 2
    return moment if moment <= length else draw.uniform(0.0, length)


def _queues(weights: Mapping[str, int], pool: Amounts) -> list[QueueSpec]:
    """Return the queues of one cohort, which share the pool as quotas by weight and may borrow all of it."""
    whole = sum(weights.values())
    return [
        QueueSpec(
            name=name,
            weight=weight,
            quota={resource: amount * weight // whole for resource, amount in pool.items()},
            cohort="all",
        )
        for name, weight in weights.items()
    ]


def _with_elastic(jobs: Sequence[Job]) -> list[Job]:
    """Return the jobs, every third job with GPUs as an elastic job whose workers are as large as the job was."""
    return [
        _elastic(job) if number % _EVERY == 0 and job.entry.demand.get(GPU, 0) else job
        for number, job in enumerate(jobs)
    ]


def _elastic(job: Job) -> Job:
    unit = {name: amount for name, amount in job.entry.demand.items() if name != amounts.JOBS}
    demand = {amounts.JOBS: 1, **amounts.scale(unit, LEAST)}
    return Job(replace(job.entry, demand=demand, size=LEAST, unit=unit, most=WANTED - LEAST), job.seconds)
