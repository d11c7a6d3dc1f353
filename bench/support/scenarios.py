"""The queues, the pool and the jobs of a simulation: from a trace, from a YAML file, or random.

One rule: a file is read and validated once, and the jobs are in the order of their submission.
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
from bench.support.arena import GPU, entry
from crds.resources import amounts, quantities
from crds.resources.amounts import Amounts
from queues.values import Entry, QueueSpec

WEIGHTS: Mapping[str, int] = {"a": 5, "b": 3, "c": 1, "d": 1}
_POOL = 64
_MIB = 1 << 20
_PODS = 110
"""The most pods of a node, by default of a kubelet."""
Nodes = Sequence[Amounts]
"""What each node offers."""


@dataclass(frozen=True, slots=True)
class Job:
    """A job and its run time in seconds."""

    entry: Entry
    seconds: float


@dataclass(frozen=True, slots=True)
class Scenario:
    """The queues, the pool that they share, and the jobs."""

    queues: Sequence[QueueSpec]
    pool: Amounts | None
    jobs: Sequence[Job]


def mixed(jobs: int, seed: int) -> Scenario:
    """Return a scenario with queues of weights 5, 3, 1 and 1, which get the same mix of jobs.

    The jobs have 1, 2, 4 or 8 GPUs and run 1 to 100 s. Together they need a tenth more than 64 GPUs.
    """
    draw = random.Random(seed)
    every = 3.75 * 50.5 / (1.1 * _POOL)
    kinds = ((draw.choice(list(WEIGHTS)), {GPU: draw.choice((1, 2, 4, 8))}, draw.uniform(1, 100)) for _ in range(jobs))
    random_jobs = [timed_job(queue, n, n * every, demand, time) for n, (queue, demand, time) in enumerate(kinds)]
    queues = [QueueSpec(name=name, weight=weight) for name, weight in WEIGHTS.items()]
    return Scenario(queues, {GPU: _POOL}, random_jobs)


def trace(path: Path, room: float) -> Scenario:
    """Return the tasks of a CSV file as a scenario, with a queue of weight 1 per `qos`. Raises BenchError.

    The pool is the part `room` of the most that the tasks would use at once, and at least as large as the largest task.
    Tasks without a time of creation or deletion are ignored.
    """
    try:
        with path.open(newline="") as file:
            rows = list(csv.DictReader(file))
        jobs = [job for number, row in enumerate(rows) if (job := _task(row, number))]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise BenchError(f"trace {path}: {error}") from error
    except (KeyError, ValueError) as error:
        raise BenchError(f"trace {path}: not a list of tasks: {error}") from error
    if not jobs:
        raise BenchError(f"trace {path}: no task in it has both a creation_time and a deletion_time")
    jobs.sort(key=lambda job: (job.entry.submitted, job.entry.key))
    queues = [QueueSpec(name=name) for name in sorted({job.entry.queue for job in jobs})]
    return Scenario(queues, pool_of(jobs, room), jobs)


def nodes(path: Path) -> Nodes:
    """Return what the nodes of a CSV file offer. Raises BenchError."""
    try:
        with path.open(newline="") as file:
            found = [_node(row) for row in csv.DictReader(file)]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise BenchError(f"nodes {path}: {error}") from error
    except (KeyError, ValueError) as error:
        raise BenchError(f"nodes {path}: not a list of nodes: {error}") from error
    if not any(node[GPU] for node in found):
        raise BenchError(f"nodes {path}: no node in it has a GPU")
    return found


def pods_beside(nodes: Path) -> Path:
    """Return the list of pods in the folder of a list of nodes, as published traces name both: NAME_node_list*.csv and
    NAME_pod_list*.csv. Of several, the one that is named default. Raises BenchError.
    """
    prefix, node_list, _ = nodes.name.partition("node_list")
    found = sorted(nodes.parent.glob("*pod_list*.csv")) if node_list else []
    found = [each for each in found if each.name.startswith(f"{prefix}pod_list")]
    chosen = [each for each in found if each.stem == f"{prefix}pod_list_default"] or found
    if len(chosen) == 1:
        return chosen[0]
    reason = f"{len(found)} lists of pods are beside it" if found else "no list of pods that belongs to it is beside it"
    raise BenchError(f"nodes {nodes}: {reason}: add --trace CSV")


def _node(row: Mapping[str, str]) -> Amounts:
    offered = {"cpu": int(row["cpu_milli"]), "memory": int(row["memory_mib"]) * _MIB, GPU: int(row["gpu"])}
    return {**offered, amounts.PODS: _PODS}


def _task(row: Mapping[str, str], number: int) -> Job | None:
    if not row["creation_time"] or not row["deletion_time"]:
        return None
    created, deleted = float(row["creation_time"]), float(row["deletion_time"])
    started = float(row.get("scheduled_time") or created)
    demand = {"cpu": int(row["cpu_milli"]), "memory": int(row["memory_mib"]) * _MIB, GPU: int(row["num_gpu"])}
    return timed_job(row["qos"].lower(), number, created, demand, max(1.0, deleted - started), row["name"])


def peak(jobs: Sequence[Job]) -> Amounts:
    """Return the most that the jobs would use at once if every job ran when it arrived, as its owner asks."""
    moves: list[tuple[float, int, Amounts]] = []
    for job in jobs:
        demand = amounts.add(job.entry.demand, amounts.scale(job.entry.unit, job.entry.most))
        moves += [(job.entry.submitted, 1, demand), (job.entry.submitted + job.seconds, -1, demand)]
    used: dict[str, int] = {}
    most: Amounts = amounts.NOTHING
    for _, sign, change in sorted(moves, key=lambda move: move[:2]):
        amounts.increase(used, change, sign)
        most = amounts.peak(most, used)
    return most


def pool_of(jobs: Sequence[Job], room: float) -> dict[str, int]:
    """Return the part `room` of the room that the jobs would use at once, and at least the room of the largest job."""
    largest: Amounts = amounts.NOTHING
    for job in jobs:
        largest = amounts.peak(largest, job.entry.demand)
    pool = amounts.peak({name: int(most * room) for name, most in peak(jobs).items()}, largest)
    return {name: amount for name, amount in pool.items() if name != amounts.JOBS}


def timed_job(
    queue: str, number: int, at: float, demand: Amounts, seconds: float, name: str = "", priority: int = 0
) -> Job:
    """Return a job that arrives at a moment and runs for some seconds."""
    requests = {name: amount for name, amount in demand.items() if amount}
    return Job(entry(queue, number, at, requests, name, priority), seconds)


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
    """A number of equal jobs: `count` jobs, one `every` number of seconds, beginning at `start`."""

    queue: str
    count: int = Field(default=1, ge=1)
    start: float = 0.0
    every: float = Field(default=0.0, ge=0)
    requests: Quantities = Field(default_factory=dict)
    seconds: Length | tuple[Length, Length]
    """The run time of each job, or its lower and upper bound."""
    priority: int = 0


class _File(_Strict):
    pool: Quantities | None = None
    queues: list[_Queue] = Field(min_length=1)
    jobs: list[_Jobs] = Field(min_length=1)


def from_yaml(path: Path, seed: int) -> Scenario:
    """Return the queues, jobs and pool of a YAML file as a scenario. Raises BenchError, which names the invalid
    field."""
    try:
        file = _File.model_validate(yaml.safe_load(path.read_text()))
        queues = [queue.spec() for queue in file.queues]
        jobs = sorted(_random_jobs(file.jobs, seed), key=lambda job: (job.entry.submitted, job.entry.key))
        pool = None if file.pool is None else _amounts(file.pool)
    except pydantic.ValidationError as error:
        problem = error.errors()[0]
        raise BenchError(f"{path}: {'.'.join(map(str, problem['loc']))}: {problem['msg']}") from error
    except (OSError, UnicodeDecodeError, yaml.YAMLError, ValueError) as error:
        raise BenchError(f"{path}: {error}") from error
    missing = {job.entry.queue for job in jobs} - {queue.name for queue in queues}
    if missing:
        raise BenchError(f"{path}: jobs: there is no queue {', '.join(sorted(missing))}")
    return Scenario(queues, pool, jobs)


def _random_jobs(kinds: Sequence[_Jobs], seed: int) -> Iterator[Job]:
    draw, numbers = random.Random(seed), count()
    for kind in kinds:
        demand = _amounts(kind.requests)
        for index in range(kind.count):
            match kind.seconds:
                case (least, most):
                    seconds = draw.uniform(least, most)
                case seconds:
                    pass
            yield timed_job(
                kind.queue, next(numbers), kind.start + index * kind.every, demand, seconds, "", kind.priority
            )


def _amounts(quantities_by_name: Quantities) -> dict[str, int]:
    return {
        quantities.canonical(name): quantities.parse(quantities.canonical(name), quantity)
        for name, quantity in quantities_by_name.items()
    }
