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

from bench.support import manifests
from bench.support.open_loop import Planned
from bench.support.pod_player import RUN_LABEL
from kube.api import Manifest

CLASS_LABEL = "bench/class"
COHORTS, QUEUES = 5, 6
QUOTA, BORROWING = 20, 100
"""The cpu of each queue."""


@dataclass(frozen=True, slots=True)
class JobClass:
    """The jobs of one queue that are alike."""

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
class ScenarioJob:
    """A job of the scenario: its cohort, queue and class."""

    cohort: str
    queue: str
    kind: JobClass


@dataclass(frozen=True, slots=True)
class Scenario:
    """The queues and jobs of one run. The names of all queues and cohorts begin with the prefix."""

    prefix: str
    factor: float = 1.0
    """The factor for the number of jobs of each class; each class has at least one job."""

    @property
    def quota(self) -> int:
        """The cpu of all queues together."""
        return COHORTS * QUEUES * QUOTA

    @property
    def cohort_quota(self) -> int:
        """The cpu of the queues of one cohort, which is also the most that one queue may use."""
        return QUEUES * QUOTA

    @property
    def work(self) -> float:
        """The cpu seconds of all jobs together."""
        return COHORTS * QUEUES * sum(kind.count * kind.cpu * kind.run_s for kind in self.classes)

    @property
    def classes(self) -> tuple[JobClass, ...]:
        """The classes with their number of jobs in this run."""
        return tuple(
            JobClass(
                kind.name,
                math.ceil(kind.count * self.factor),
                kind.cpu,
                kind.run_s,
                kind.priority,
                kind.every_s,
            )
            for kind in CLASSES
        )

    def queues(self) -> Iterator[Manifest]:
        """Yield the TenantQueues."""
        for cohort, queue in self._names():
            limits = {"quota": {"cpu": str(QUOTA)}, "borrowingLimit": {"cpu": str(BORROWING)}}
            yield manifests.queue(queue, cohort=cohort, **limits)

    def jobs(self) -> dict[str, ScenarioJob]:
        """Return every job by name."""
        return {
            f"{queue.removeprefix(self.prefix + '-')}-{kind.name}-{number}": ScenarioJob(cohort, queue, kind)
            for cohort, queue in self._names()
            for kind in self.classes
            for number in range(kind.count)
        }

    def plan(self) -> Iterator[Planned]:
        """Yield every job with the time of its creation."""
        for name, job in self.jobs().items():
            number = int(name.rpartition("-")[2])
            yield Planned(number * job.kind.every_s, manifest(name, job))

    def _names(self) -> Iterator[tuple[str, str]]:
        for cohort in range(COHORTS):
            for queue in range(QUEUES):
                yield f"{self.prefix}-c{cohort}", f"{self.prefix}-c{cohort}-q{queue}"


def manifest(name: str, job: ScenarioJob) -> Manifest:
    """Return the TorchJob, with one pod that no node runs."""
    kind = job.kind
    task = manifests.task({RUN_LABEL: str(round(kind.run_s * 1000))}, {"cpu": str(kind.cpu)})
    made = manifests.job(name, job.queue, {"Master": task}, schedulingPolicy={"priority": kind.priority})
    made["metadata"]["labels"] = {CLASS_LABEL: kind.name}
    return made
