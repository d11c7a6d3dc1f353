"""A scenario as a value: its jobs and queues, the ends of its pods, and the actions of users and admins.

One rule: a scenario has the same end, whenever the owner's steps and the faults happen.
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
"""A condition on the existing jobs, by name."""
Fate = Callable[[str, int, int], int | str | None]
"""A function that decides how the next pod ends, from its task, its index and the number of failures at that index.

The result is an exit code, or the reason of an eviction, or OOMKilled, or Preempted; None if the pod runs until it is
stopped."""


Stall = Callable[[str, int, int], bool]
"""A function that says which pods never start, from their task, their index and the number of pods there before."""
Placement = Callable[[str, int, list[str]], str]
"""A function that chooses the node of a pod, from its task, its index and the nodes that are ready."""


Stand = Callable[[str, int, int, int], bool]
"""A function that says which pods make no further step and no report, from their task, their index, the job's
restartCount and their last step."""


def _all_well(task_type: str, *_: object) -> int | None:
    """Let all pods succeed, except for the store of an elastic job, which runs until it is asked to stop."""
    return None if task_type == "rendezvous" else 0


def _first_ready(_: str, __: int, ready: list[str]) -> str:
    return ready[0] if ready else ""


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """A scenario: the initial cluster, the actions of people, and the expected end."""

    name: str
    queues: Mapping[str, Mapping[str, Any]]
    jobs: Mapping[str, Mapping[str, Any]]
    ends: Mapping[str, str]
    """The last phase of each job. A job that is missing here must be deleted in the end."""
    restarts: Mapping[str, int] = field(default_factory=dict)
    steps: tuple[tuple[Condition, Step], ...] = ()
    """The actions of people in order, each at the time when its condition holds, or earlier if a fault says so."""
    fate: Fate = _all_well
    pool: str = "none"
    ports: tuple[int, int] | None = None
    loose: bool = False
    """Whether a step of the owner may delete finished pods if it comes at an unlucky moment."""
    stuck: int = 0
    """Pods of attempts up to this one never start."""
    refused: str = ""
    """The job whose first group the gang scheduler does not let in."""
    stalls: Stall = lambda *_: False
    place: Placement = _first_ready
    reports: Mapping[str, float] = field(default_factory=dict)
    """The seconds between two steps of a pod, which it reports, by job. Pods of other jobs report nothing."""
    stands: Stand = lambda *_: False
    forged: str = ""
    """The job in whose name the pods of all other jobs report, too, with their own tokens."""
    least_steps: int = 0
    """No reporting pod ends before it has made this number of steps."""
    sizes: Mapping[str, int] = field(default_factory=dict)
    """The number of workers with which a job ends. The pods of the job end only when it has this number of workers, no
    change of them is under way, and people have taken all of their steps.
    """
    idle: Mapping[str, int | None] = field(default_factory=dict)
    """How many of these workers are idle growth, by job; None means that the job has any number of workers beside the
    number in `sizes`.
    """
    outcomes: Mapping[str, str] = field(default_factory=dict)
    """The last phase of each scale request, by name; empty if any phase is right. There may be no request if a step of
    people comes early.
    """
    never: Condition = lambda _: False
    """A condition that must never hold, unless a fault lets the owner take a step early."""
    is_remembered: bool = False
    """Whether the condition `never` may hold after the store has lost its data."""
    gentle: bool = False
    """Whether no step of people and no failure takes a pod from a job, so that a job loses only pods that it named."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Settings that differ from the defaults of a simulation."""
    disruptions: Mapping[str, int | None] = field(default_factory=dict)
    """The number of disruptions of each job. There may be fewer if a step of people comes early. None means any number,
    as a worker may not see a pod before it is gone.
    """
    tampered: bool = False
    """Whether people delete objects that they do not own."""
    requests: int = 0
    """The number of restarts that people request."""
    until: Condition = lambda _: True
    """No pod ends before this condition holds."""
    nodes: tuple[str, ...] = (FIRST_NODE,)
    """The names of the nodes. Pods are bound to the first node that is ready."""
    allocatable: Mapping[str, str] = field(default_factory=dict)
    """What each node offers, for a pool that is made of nodes. Pods are bound to a node even if it is full."""
    features: tuple[str, ...] = ()
    """The features that the kubelets of all nodes declare."""
    bad_node: str = ""
    """The node on which no pod ends."""
    missing: tuple[Resource, ...] = ()
    """The kinds that are not installed at first."""
    strangers: bool = False
    """Whether there are foreign objects that look like the objects of the first job."""
    hostile: bool = False
    """Whether users of another namespace have made pods that claim to be charged to the first job's queue."""
    adds: Mapping[str, str] = field(default_factory=dict)
    """The requests that the API server adds to containers without them, as a LimitRange does."""
    most_pods: int = 0
    """The ResourceQuota of the namespace on pods that have not ended; 0 means no quota."""
    patience: float = 0.0
    """The seconds of deliberate waiting in a run without faults."""


def task(count: int = 1, **fields: Any) -> Manifest:
    """Return an entry of torchTaskSpecs with 1 CPU per pod."""
    container = {"name": "torch", "image": "torch:1", "resources": {"requests": {"cpu": "1"}}}
    return {"numTasks": count, "template": {"spec": {"containers": [container]}}, **fields}


def pair(**fields: Any) -> Manifest:
    """Return a master and a worker that start at the same time."""
    return {"Master": task(**fields), "Worker": task(dependsOn=[], **fields)}


def fails(failing: str, how: int | str, times: int, index: int = 0) -> Fate:
    """Return the fate with which one pod fails `times` times.

    The other pods of its task and the master succeed; pods of other tasks run until the job ends.
    """

    def fate(task_type: str, at: int, failed: int) -> int | str | None:
        if task_type == failing and at == index:
            return how if failed < times else 0
        return 0 if task_type in (failing, "master") else None

    return fate


def master_fails(code: int, times: int) -> Fate:
    return lambda task_type, _, failed: (code if failed < times else 0) if task_type == "master" else None


ONE = {"a": {"quota": {"jobs": "1"}}}
