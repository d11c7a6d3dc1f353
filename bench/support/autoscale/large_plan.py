"""The time of one plan with many elastic jobs and queues.

One rule: the figure is the CPU time of this process. Of several runs the fastest run is taken, because other
programs on the machine only make a run slower.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from bench.support.arena import GPU
from crds.keys import JobKey
from crds.resources import amounts
from queues.picking.picker import Picker
from queues.resizing.resize_plan import plan
from queues.resizing.values import ElasticJob, Plan
from queues.rules import PickRules
from queues.values import Entry, QueueSnapshot, QueueSpec, Snapshot, WaitingEntry

_UNIT = {"cpu": 4_000, "memory": 1 << 33, GPU: 1, amounts.PODS: 1}
_RUNS = 41
_START, _IDLE_SECONDS = 1_700_000_000.0, 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """The state of all queues. Each queue has one elastic job of 4 workers."""

    most: int = 8
    idle: int = 0
    room: int
    """The pool, in workers per queue."""
    quota: int = 0
    waiting: int = 0
    """The GPUs of each queue's first waiting job; 0: none waits."""


CASES: Mapping[str, Case] = {
    "nothing_to_do": Case(most=4, room=8),
    "pool_full": Case(room=4),
    "growth": Case(room=6),
    "growth_in_quotas": Case(room=9, quota=6),
    "giving_back": Case(idle=2, room=4, waiting=1),
    "giving_back_in_quotas": Case(idle=2, room=9, quota=4, waiting=1),
}


def milliseconds(case: Case, count: int) -> float:
    """Return the time of a plan with the given numbers of elastic jobs and queues."""
    planned, times = _planner(case, count), []
    for _ in range(_RUNS):
        begin = time.process_time()
        planned()
        times.append(time.process_time() - begin)
    return 1_000 * min(times)


def planned(case: Case, count: int) -> Plan:
    """Return that plan."""
    return _planner(case, count)()


def _planner(case: Case, count: int) -> Callable[[], Plan]:
    jobs = [_job(number, case) for number in range(count)]
    picker = Picker(_snapshot(case, jobs), PickRules(cost=GPU))
    picker.picks(_START, count)
    idle_since = plan(picker, jobs, _START).idle_since
    return lambda: plan(picker, jobs, _START + _IDLE_SECONDS, idle_since)


def _job(number: int, case: Case) -> ElasticJob:
    return ElasticJob(
        key=JobKey("team", f"job-{number}", f"uid-{number}"),
        queue=f"queue-{number:04}",
        workers=4,
        least=1,
        wanted=4 - case.idle,
        most=case.most,
        unit=_UNIT,
        idle=case.idle,
        autoscale=True,
        submitted=_START + number,
        idle_seconds=_IDLE_SECONDS,
    )


def _snapshot(case: Case, jobs: list[ElasticJob]) -> Snapshot:
    usage = amounts.scale(_UNIT, 4)
    return Snapshot(
        epoch=1,
        revision=1,
        pool=amounts.scale(_UNIT, case.room * len(jobs)),
        pool_usage=amounts.scale(usage, len(jobs)),
        queues=tuple(
            QueueSnapshot(
                spec=QueueSpec(name=job.queue, quota={GPU: case.quota} if case.quota else amounts.NOTHING),
                usage=usage,
                waiting=bool(case.waiting),
                heads=(_waiting(job.queue, case.waiting),) if case.waiting else (),
            )
            for job in jobs
        ),
    )


def _waiting(queue: str, gpus: int) -> WaitingEntry:
    demand = {amounts.JOBS: 1, **amounts.scale(_UNIT, gpus)}
    return WaitingEntry(Entry(key=JobKey("team", "waiting", queue), queue=queue, submitted=_START, demand=demand), 1)
