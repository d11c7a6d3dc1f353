"""What there is and what comes, for simulations: from a trace, a YAML file, or drawn from a seed.

One rule: read once, checked at the door; the jobs are in the order of their submission.
"""

import csv
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Annotated, Literal

import pydantic
import yaml
from pydantic import Field

from bench.errors import BenchError
from crds.keys import JobKey
from crds.resources import amounts, quantities
from crds.resources.amounts import Amounts
from queues.picking import queue_state
from queues.values import Entry, QueueSpec

GPU = "nvidia.com/gpu"
WEIGHTS: Mapping[str, int] = {"a": 5, "b": 3, "c": 1, "d": 1}
_POOL = 64
_MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Job:
    """A job and how long it runs, in seconds."""

    entry: Entry
    seconds: float


@dataclass(frozen=True, slots=True)
class Scenario:
    """Queues, what they share, and the jobs."""

    queues: Sequence[QueueSpec]
    pool: Amounts | None
    jobs: Sequence[Job]


def mixed(jobs: int, seed: int) -> Scenario:
    """Queues of weights 5, 3, 1 and 1 that ask alike for jobs of 1, 2, 4 and 8 GPUs and 1 to 100 s, a tenth more than
    64 GPUs can bear."""
    draw = random.Random(seed)
    every = 3.75 * 50.5 / (1.1 * _POOL)
    made = [
        _job(draw.choice(list(WEIGHTS)), number, number * every, {GPU: draw.choice((1, 2, 4, 8))}, draw.uniform(1, 100))
        for number in range(jobs)
    ]
    return Scenario([QueueSpec(name=name, weight=weight) for name, weight in WEIGHTS.items()], {GPU: _POOL}, made)


def trace(path: Path, room: float) -> Scenario:
    """Tasks from a CSV file, a queue of weight 1 per `qos`. The pool is `room` of the most that they would use at once,
    but as large as the largest task. Tasks without a time of creation or deletion are left out. BenchError."""
    try:
        with path.open(newline="") as file:
            rows = list(csv.DictReader(file))
        made = [job for number, row in enumerate(rows) if (job := _task(row, number))]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise BenchError(f"trace {path}: {error}") from error
    except (KeyError, ValueError) as error:
        raise BenchError(f"trace {path}: not a list of tasks: {error}") from error
    if not made:
        raise BenchError(f"trace {path}: no task in it has both a creation_time and a deletion_time")
    made.sort(key=lambda job: (job.entry.submitted, job.entry.key))
    peak, largest = _peak(made), amounts.NOTHING
    for job in made:
        largest = amounts.peak(largest, job.entry.demand)
    pool = amounts.peak({name: int(most * room) for name, most in peak.items() if name != amounts.JOBS}, largest)
    pool.pop(amounts.JOBS)
    return Scenario([QueueSpec(name=name) for name in sorted({job.entry.queue for job in made})], pool, made)


def _task(row: Mapping[str, str], number: int) -> Job | None:
    if not row["creation_time"] or not row["deletion_time"]:
        return None
    created, deleted = float(row["creation_time"]), float(row["deletion_time"])
    started = float(row.get("scheduled_time") or created)
    demand = {"cpu": int(row["cpu_milli"]), "memory": int(row["memory_mib"]) * _MIB, GPU: int(row["num_gpu"])}
    return _job(row["qos"].lower(), number, created, demand, max(1.0, deleted - started), row["name"])


def _peak(made: Sequence[Job]) -> Amounts:
    """The most that would be used at once if every job ran when it came."""
    moves = [(job.entry.submitted, 1, job.entry.demand) for job in made]
    moves += [(job.entry.submitted + job.seconds, -1, job.entry.demand) for job in made]
    used: dict[str, int] = {}
    peak: Amounts = amounts.NOTHING
    for _, sign, demand in sorted(moves, key=lambda move: move[:2]):
        queue_state.charge(used, amounts.scale(demand, sign))
        peak = amounts.peak(peak, used)
    return peak


class _Strict(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid", frozen=True, populate_by_name=True)


Quantities = dict[str, str | int | float]


class _Queue(_Strict):
    name: str
    weight: int = Field(default=1, ge=1)
    quota: Quantities = Field(default_factory=dict)
    cohort: str = ""
    borrowing_limit: Quantities = Field(default_factory=dict, alias="borrowingLimit")
    ordering: Literal["BestEffortFIFO", "StrictFIFO"] = "BestEffortFIFO"

    def spec(self) -> QueueSpec:
        return QueueSpec(
            name=self.name,
            weight=self.weight,
            quota=_amounts(self.quota),
            cohort=self.cohort,
            borrowing=_amounts(self.borrowing_limit),
            strict=self.ordering == "StrictFIFO",
        )


Length = Annotated[float, Field(gt=0)]


class _Jobs(_Strict):
    """Some jobs alike: `count` of them, one `every` so many seconds from `start` on."""

    queue: str
    count: int = Field(default=1, ge=1)
    start: float = 0.0
    every: float = Field(default=0.0, ge=0)
    requests: Quantities = Field(default_factory=dict)
    seconds: Length | tuple[Length, Length]
    """How long each runs, or between what bounds."""
    priority: int = 0


class _File(_Strict):
    pool: Quantities | None = None
    queues: list[_Queue] = Field(min_length=1)
    jobs: list[_Jobs] = Field(min_length=1)


def from_yaml(path: Path, seed: int) -> Scenario:
    """Queues, jobs and a pool from a YAML file. BenchError names the field that is wrong."""
    try:
        file = _File.model_validate(yaml.safe_load(path.read_text()))
        queues = [queue.spec() for queue in file.queues]
        made = sorted(_drawn(file.jobs, seed), key=lambda job: (job.entry.submitted, job.entry.key))
        pool = None if file.pool is None else _amounts(file.pool)
    except pydantic.ValidationError as error:
        problem = error.errors()[0]
        raise BenchError(f"{path}: {'.'.join(map(str, problem['loc']))}: {problem['msg']}") from error
    except (OSError, UnicodeDecodeError, yaml.YAMLError, ValueError) as error:
        raise BenchError(f"{path}: {error}") from error
    missing = {job.entry.queue for job in made} - {queue.name for queue in queues}
    if missing:
        raise BenchError(f"{path}: jobs: there is no queue {', '.join(sorted(missing))}")
    return Scenario(queues, pool, made)


def _drawn(kinds: Sequence[_Jobs], seed: int) -> Iterator[Job]:
    draw, numbers = random.Random(seed), count()
    for kind in kinds:
        demand = _amounts(kind.requests)
        for each in range(kind.count):
            match kind.seconds:
                case (least, most):
                    seconds = draw.uniform(least, most)
                case seconds:
                    pass
            yield _job(kind.queue, next(numbers), kind.start + each * kind.every, demand, seconds, "", kind.priority)


def _amounts(given: Quantities) -> dict[str, int]:
    return {
        quantities.canonical(name): quantities.parse(quantities.canonical(name), each) for name, each in given.items()
    }


def _job(queue: str, number: int, at: float, demand: Amounts, seconds: float, name: str = "", priority: int = 0) -> Job:
    key = JobKey(queue, name or f"job-{number:07}", f"uid-{number}")
    asked = {name: amount for name, amount in demand.items() if amount}
    entry = Entry(key=key, queue=queue, submitted=at, priority=priority, demand={amounts.JOBS: 1, **asked})
    return Job(entry, seconds)
