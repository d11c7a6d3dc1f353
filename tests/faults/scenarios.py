"""What happens in a run when nothing goes wrong: jobs, queues, how pods end, and what people do.

One rule: however the owner's steps and the faults are timed, the end is the same; otherwise it is not a scenario.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from cluster.api import Cluster, Manifest
from crds import labels
from crds.resources import TENANT_QUEUES, TORCHJOBS

NAMESPACE = "default"
Step = Callable[[Cluster], object]
Condition = Callable[[Mapping[str, Manifest]], bool]
"""Of the jobs that there are, by name."""
Fate = Callable[[str, int, int], int | None]
"""How a pod ends: task, index and restart to the exit code; None if it runs until somebody stops it."""


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
    forgives: bool = False
    """Whether a crash may forgive a failure (restartScope Task: deleted first, counted then)."""


def at_once(_: Mapping[str, Manifest]) -> bool:
    """Without waiting for anything."""
    return True


def phase(job: str, *phases: str) -> Condition:
    """Whether the job has come to one of these phases."""
    return lambda jobs: job in jobs and (jobs[job].get("status") or {}).get("phase", "") in phases


def change(job: str, **spec: Any) -> Step:
    """The owner patches the spec."""
    return lambda cluster: cluster.patch(TORCHJOBS, job, {"spec": spec}, NAMESPACE)


def delete(job: str) -> Step:
    """The owner deletes the job."""
    return lambda cluster: cluster.delete(TORCHJOBS, job, NAMESPACE)


def new_queue(queue: str, **spec: Any) -> Step:
    """The admin makes a queue."""
    body = {"apiVersion": TENANT_QUEUES.api_version, "kind": "TenantQueue", "metadata": {"name": queue}, "spec": spec}
    return lambda cluster: cluster.create(TENANT_QUEUES, body)


def queue_change(queue: str, **spec: Any) -> Step:
    """The admin patches a queue."""
    return lambda cluster: cluster.patch(TENANT_QUEUES, queue, {"spec": spec})


def task(count: int = 1, **fields: Any) -> Manifest:
    """One entry of torchTaskSpecs, 1 CPU each."""
    container = {"name": "torch", "image": "torch:1", "resources": {"requests": {"cpu": "1"}}}
    return {"numTasks": count, "template": {"spec": {"containers": [container]}}, **fields}


def pair(**fields: Any) -> Manifest:
    """A master and a worker, both at once."""
    return {"Master": task(**fields), "Worker": task(dependsOn=[], **fields)}


def _master_fails(code: int, times: int) -> Fate:
    return lambda task, _, restart: (code if restart < times else 0) if task == "master" else None


ONE = {"a": {"quota": {"jobs": "1"}}}
RESTARTS = {"torchTaskSpecs": pair(restartPolicy="OnFailure")}

_ALL = (
    Scenario(name="life", queues={"a": {}}, jobs={"one": {}}, ends={"one": "Succeeded"}),
    Scenario(
        name="clean",
        queues=ONE,
        jobs={"one": {"cleanPodPolicy": "All"}, "two": {"cleanPodPolicy": "All"}},
        ends={"one": "Succeeded", "two": "Succeeded"},
    ),
    Scenario(
        name="quota",
        queues=ONE,
        jobs={"one": {}, "two": {}},
        ends={"one": "Succeeded", "two": "Succeeded"},
    ),
    Scenario(
        name="pool",
        queues={"a": {}, "b": {"weight": 2}},
        jobs={"one": {}, "two": {"queue": "b"}, "three": {"queue": "b"}},
        ends=dict.fromkeys(("one", "two", "three"), "Succeeded"),
        pool="cpu=4",
    ),
    Scenario(
        name="ports",
        queues={"a": {}},
        jobs={"one": {}, "two": {}, "three": {}},
        ends=dict.fromkeys(("one", "two", "three"), "Succeeded"),
        ports=(20_000, 20_001),
    ),
    Scenario(
        name="suspend",
        loose=True,
        queues=ONE,
        jobs={"one": {}, "two": {}},
        ends={"one": "Succeeded", "two": "Succeeded"},
        steps=(
            (phase("one", "Running"), change("one", suspend=True)),
            (phase("one", "Suspended", "Succeeded"), change("one", suspend=False)),
        ),
    ),
    Scenario(
        name="resume",
        loose=True,
        queues=ONE,
        jobs={"one": {}, "two": {}},
        ends={"one": "Succeeded", "two": "Succeeded"},
        steps=(
            (phase("one", "Admitted", "Running"), change("one", suspend=True)),
            (at_once, change("one", suspend=False)),
        ),
    ),
    Scenario(
        name="delete",
        queues=ONE,
        jobs={"one": {}, "two": {}},
        ends={"two": "Succeeded"},
        steps=((phase("one", "Admitted", "Running"), delete("one")),),
    ),
    Scenario(
        name="restart",
        queues=ONE,
        jobs={"one": {**RESTARTS, "backoffLimit": 2}},
        ends={"one": "Succeeded"},
        restarts={"one": 1},
        fate=_master_fails(137, 1),
    ),
    Scenario(
        name="replace",
        queues=ONE,
        jobs={"one": {**RESTARTS, "backoffLimit": 3, "restartScope": "Task"}},
        ends={"one": "Succeeded"},
        restarts={"one": 1},
        fate=_master_fails(137, 1),
        forgives=True,
    ),
    Scenario(
        name="giveup",
        queues=ONE,
        jobs={"one": {**RESTARTS, "backoffLimit": 1}, "two": {"backoffLimit": 0}},
        ends={"one": "Failed", "two": "Failed"},
        restarts={"one": 1},
        fate=_master_fails(137, 9),
    ),
    Scenario(
        name="move",
        queues={"a": {"stopPolicy": "Hold"}, "b": {"quota": {"jobs": "1"}}},
        jobs={"one": {}, "two": {"queue": "b"}},
        ends={"one": "Succeeded", "two": "Succeeded"},
        steps=((at_once, change("one", schedulingPolicy={"queue": "b"})),),
    ),
    Scenario(
        name="late",
        queues=ONE,
        jobs={"one": {}},
        ends={"one": "Succeeded"},
        stuck=1,
        settings={"admission_timeout": 15, "admission_backoff": 5, "admission_tries": 100},
    ),
    Scenario(
        name="drain",
        loose=True,
        queues=ONE,
        jobs={"one": {}, "two": {}},
        ends={"one": "Succeeded", "two": "Succeeded"},
        steps=(
            (phase("one", "Running"), queue_change("a", stopPolicy="HoldAndDrain")),
            (phase("one", "Queued", "Succeeded"), queue_change("a", stopPolicy="None")),
        ),
    ),
    Scenario(
        name="elsewhere",
        queues={"a": {"namespaces": ["others"]}},
        jobs={"one": {}, "two": {"queue": "later"}},
        ends={"one": "Succeeded", "two": "Succeeded"},
        steps=(
            (at_once, queue_change("a", namespaces=[NAMESPACE])),
            (at_once, new_queue("later")),
        ),
    ),
    Scenario(
        name="gate",
        queues=ONE,
        jobs={
            "one": {
                "torchTaskSpecs": {
                    "Master": task(),
                    "Worker": task(dependsOn=[{"taskType": "Master", "phase": "Running"}]),
                }
            },
        },
        ends={"one": "Succeeded"},
    ),
)
SCENARIOS = {each.name: each for each in _ALL}


def populate(cluster: Cluster, scenario: Scenario) -> None:
    """Make the queues and the jobs."""
    for name, spec in scenario.queues.items():
        body = {"apiVersion": TENANT_QUEUES.api_version, "kind": "TenantQueue", "metadata": {"name": name}}
        cluster.create(TENANT_QUEUES, {**body, "spec": dict(spec)})
    for name, spec in scenario.jobs.items():
        fields = dict(spec)
        body = {"apiVersion": TORCHJOBS.api_version, "kind": "TorchJob", "metadata": {"name": name}}
        policy = {"schedulingPolicy": {"queue": fields.pop("queue", "a")}}
        cluster.create(TORCHJOBS, {**body, "spec": {"torchTaskSpecs": pair(), **policy, **fields}}, NAMESPACE)


def marks(found: Mapping[str, str]) -> tuple[str, int, int]:
    """Task, index and restart from a pod's labels."""
    return found[labels.TASK_TYPE], int(found[labels.TASK_INDEX]), int(found[labels.RESTART])
