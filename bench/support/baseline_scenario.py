"""The scenario of Kueue's own scalability test, in TorchJobs.

One rule: pure. All numbers are those of kubernetes-sigs/kueue, test/performance/scheduler, configuration "baseline".

    5 cohorts of 6 queues, each with a quota of 20 cpu, and up to 100 more borrowed from its cohort; in each queue
    class    jobs  cpu  runs      priority  one every
    small     350    1    200 ms        50     100 ms
    medium    100    5    500 ms       100     500 ms
    large      50   20  1,000 ms       200   1,200 ms
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from bench.benchmarks.open_loop import Planned
from bench.support.pod_player import RUN_LABEL
from crds.api_resources import TENANT_QUEUES, TORCHJOBS
from kube.api import Manifest

CLASS_LABEL = "bench/class"
NOBODY = "bench-plays-the-node"
"""A scheduler that does not exist: no node takes the pods."""
COHORTS, QUEUES = 5, 6
QUOTA, BORROWING = 20, 100
"""Cpu of each queue."""


@dataclass(frozen=True, slots=True)
class JobClass:
    """Equal jobs of one queue."""

    name: str
    count: int
    cpu: int
    run_s: float
    priority: int
    every_s: float


CLASSES = (
    JobClass("small", 350, 1, 0.2, 50, 0.1),
    JobClass("medium", 100, 5, 0.5, 100, 0.5),
    JobClass("large", 50, 20, 1.0, 200, 1.2),
)


@dataclass(frozen=True, slots=True)
class Planted:
    """A job of the scenario: where it belongs."""

    cohort: str
    queue: str
    kind: JobClass


@dataclass(frozen=True, slots=True)
class Scenario:
    """Queues and jobs; all names of queues and cohorts begin with the prefix."""

    prefix: str
    factor: float = 1.0
    """Of the number of jobs in each class; at least one is left."""

    @property
    def quota(self) -> int:
        """Cpu of all queues together."""
        return COHORTS * QUEUES * QUOTA

    @property
    def cohort_quota(self) -> int:
        """Cpu of the queues of one cohort; no queue may hold more either."""
        return QUEUES * QUOTA

    @property
    def work(self) -> float:
        """What all jobs run together, in cpu seconds."""
        return COHORTS * QUEUES * sum(each.count * each.cpu * each.run_s for each in self.classes)

    @property
    def classes(self) -> tuple[JobClass, ...]:
        """With as many jobs as are wanted."""
        return tuple(
            JobClass(each.name, math.ceil(each.count * self.factor), each.cpu, each.run_s, each.priority, each.every_s)
            for each in CLASSES
        )

    def queues(self) -> Iterator[Manifest]:
        """The TenantQueues."""
        for cohort, queue in self._names():
            spec = {"cohort": cohort, "quota": {"cpu": str(QUOTA)}, "borrowingLimit": {"cpu": str(BORROWING)}}
            metadata = {"name": queue}
            yield {"apiVersion": TENANT_QUEUES.api_version, "kind": "TenantQueue", "metadata": metadata, "spec": spec}

    def jobs(self) -> dict[str, Planted]:
        """Every job by name."""
        return {
            f"{queue.removeprefix(self.prefix + '-')}-{kind.name}-{number}": Planted(cohort, queue, kind)
            for cohort, queue in self._names()
            for kind in self.classes
            for number in range(kind.count)
        }

    def plan(self) -> Iterator[Planned]:
        """The same jobs on their timetable."""
        for name, job in self.jobs().items():
            number = int(name.rpartition("-")[2])
            yield Planned(number * job.kind.every_s, manifest(name, job))

    def _names(self) -> Iterator[tuple[str, str]]:
        for cohort in range(COHORTS):
            for queue in range(QUEUES):
                yield f"{self.prefix}-c{cohort}", f"{self.prefix}-c{cohort}-q{queue}"


def manifest(name: str, job: Planted) -> Manifest:
    """The TorchJob, of one pod that no node takes."""
    kind = job.kind
    container = {
        "name": "torch",
        "image": "none",
        "command": ["true"],
        "resources": {"requests": {"cpu": str(kind.cpu)}},
    }
    template = {
        "metadata": {"labels": {RUN_LABEL: str(round(kind.run_s * 1000))}},
        "spec": {"schedulerName": NOBODY, "containers": [container]},
    }
    return {
        "apiVersion": TORCHJOBS.api_version,
        "kind": TORCHJOBS.kind,
        "metadata": {"name": name, "labels": {CLASS_LABEL: kind.name}},
        "spec": {
            "schedulingPolicy": {"queue": job.queue, "priority": kind.priority},
            "torchTaskSpecs": {"Master": {"template": template}},
        },
    }
