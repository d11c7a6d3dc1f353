"""A scenario as a value: jobs, queues, how pods end, and what people do.

One rule: however the owner's steps and the faults are timed, the end is the same; otherwise it is not a scenario.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from crds.api_resources import Resource
from kube.api import Manifest
from tests.faults.api import ApiClient

NAMESPACE = "default"
FIRST_NODE, SECOND_NODE = "node-1", "node-2"
Step = Callable[[ApiClient], object]
Condition = Callable[[Mapping[str, Manifest]], bool]
"""Of the jobs that there are, by name."""
Fate = Callable[[str, int, int], int | str | None]
"""How a pod ends: task, index and how often a pod in its place has failed, to the exit code, or the reason if it is
taken off its node; None if it runs until somebody stops it."""


def _all_well(*_: object) -> int | None:
    return 0


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """One story."""

    name: str
    queues: Mapping[str, Mapping[str, Any]]
    jobs: Mapping[str, Mapping[str, Any]]
    ends: Mapping[str, str]
    """Each job's last phase; a job that is missing is gone."""
    restarts: Mapping[str, int] = field(default_factory=dict)
    steps: tuple[tuple[Condition, Step], ...] = ()
    """What people do, one after the other, each when its condition holds (or earlier, if a fault says so)."""
    fate: Fate = _all_well
    pool: str = "none"
    ports: tuple[int, int] | None = None
    loose: bool = False
    """Whether the owner's steps may take finished pods away, if they come at the wrong moment."""
    stuck: int = 0
    """Pods of attempts up to this one never start."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """What is not as usual."""
    disruptions: Mapping[str, int] = field(default_factory=dict)
    """What was not the jobs' fault; less, if people come early."""
    tampered: bool = False
    """Whether people delete what is not theirs."""
    requests: int = 0
    """Restarts that people ask for."""
    until: Condition = lambda _: True
    """No pod ends before this holds."""
    nodes: tuple[str, ...] = (FIRST_NODE,)
    """Pods come to the first one that is ready."""
    bad_node: str = ""
    """No pod that is here ends."""
    missing: tuple[Resource, ...] = ()
    """Kinds that are not installed at first."""
    strangers: bool = False
    """Whether there are objects of others that look like the first job's."""
    hostile: bool = False
    """Whether users of another namespace have made pods that claim to be charged to the first job's queue."""
    adds: Mapping[str, str] = field(default_factory=dict)
    """What the API server adds to a container that asks for none of it, as a LimitRange does."""
    most_pods: int = 0
    """The limit of a ResourceQuota of the namespace on pods that have not ended; 0: there is none."""
    patience: float = 0.0
    """Seconds that it takes because somebody has to wait, though nothing goes wrong."""


def task(count: int = 1, **fields: Any) -> Manifest:
    """One entry of torchTaskSpecs, 1 CPU each."""
    container = {"name": "torch", "image": "torch:1", "resources": {"requests": {"cpu": "1"}}}
    return {"numTasks": count, "template": {"spec": {"containers": [container]}}, **fields}


def pair(**fields: Any) -> Manifest:
    """A master and a worker, both at once."""
    return {"Master": task(**fields), "Worker": task(dependsOn=[], **fields)}


def fails(failing: str, how: int | str, times: int, index: int = 0) -> Fate:
    """A pod fails so often; all others of its task end well, those of other tasks when the job does."""

    def fate(task_type: str, at: int, failed: int) -> int | str | None:
        if task_type == failing and at == index:
            return how if failed < times else 0
        return 0 if task_type in (failing, "master") else None

    return fate


def master_fails(code: int, times: int) -> Fate:
    return lambda task_type, _, failed: (code if failed < times else 0) if task_type == "master" else None


ONE = {"a": {"quota": {"jobs": "1"}}}
