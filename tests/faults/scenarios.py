"""What happens in a run when nothing goes wrong: jobs, queues, how pods end, and what people do.

One rule: however the owner's steps and the faults are timed, the end is the same; otherwise it is not a scenario.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from cluster.api import Manifest
from crds import labels
from crds.resources import GANG_QUEUES, NODES, POD_GROUPS, PODS, TENANT_QUEUES, TORCHJOBS, Resource
from reconcilers import moments
from tests.faults.api import ApiClient

NAMESPACE = "default"
ELSEWHERE = "kube-system"
TAMPERED = "tampered"
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
    patience: float = 0.0
    """Seconds that it takes because somebody has to wait, though nothing goes wrong."""


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


def said(job: str, reason: str) -> Condition:
    """Whether some condition of the job has this reason."""
    return lambda jobs: any(
        each["reason"] == reason for each in ((jobs.get(job) or {}).get("status") or {}).get("conditions") or ()
    )


def obeyed(job: str, request: str) -> Condition:
    """Whether a request for a restart was obeyed."""
    return lambda jobs: job in jobs and (jobs[job].get("status") or {}).get("restartRequest") == request


def ask(job: str, **request: Any) -> Step:
    """The owner asks for a restart."""
    annotations = {labels.RESTART_REQUEST: orjson.dumps(request).decode()}
    return lambda cluster: cluster.patch(TORCHJOBS, job, {"metadata": {"annotations": annotations}}, NAMESPACE)


def install_volcano(cluster: ApiClient) -> None:
    """The admin does."""
    cluster.install(POD_GROUPS, GANG_QUEUES)
    kind = {"apiVersion": GANG_QUEUES.api_version, "kind": GANG_QUEUES.kind}
    cluster.create(GANG_QUEUES, {**kind, "metadata": {"name": "default"}, "status": {"state": "Open"}})


def delete_group(job: str, group: str) -> Step:
    """Somebody deletes a pod group by hand, and says so."""

    def step(cluster: ApiClient) -> None:
        cluster.patch(TORCHJOBS, job, {"metadata": {"annotations": {TAMPERED: "yes"}}}, NAMESPACE)
        cluster.delete(POD_GROUPS, group, NAMESPACE)

    return step


def tampered(job: str) -> Condition:
    """Whether somebody did."""
    return lambda jobs: job in jobs and TAMPERED in (jobs[job]["metadata"].get("annotations") or {})


def silence(node: str) -> Step:
    """A node is heard of no more, and whoever watches over nodes has its pods deleted, which it does not confirm."""

    def step(cluster: ApiClient) -> None:
        cluster.patch(NODES, node, {"status": {"conditions": [_ready("Unknown", cluster.now)]}}, subresource="status")
        for pod in cluster.list(PODS, NAMESPACE).items:
            if pod["spec"].get("nodeName") == node:
                name = pod["metadata"]["name"]
                target = {"type": "DisruptionTarget", "status": "True", "reason": "DeletionByTaintManager"}
                cluster.patch(PODS, name, {"status": {"conditions": [target]}}, NAMESPACE, subresource="status")
                cluster.delete(PODS, name, NAMESPACE, grace_period_seconds=1)

    return step


def _ready(status: str, since: float) -> Manifest:
    return {"type": "Ready", "status": status, "lastTransitionTime": moments.text(since)}


def fails(failing: str, how: int | str, times: int, index: int = 0) -> Fate:
    """A pod fails so often; all others of its task end well, those of other tasks when the job does."""

    def fate(task_type: str, at: int, failed: int) -> int | str | None:
        if task_type == failing and at == index:
            return how if failed < times else 0
        return 0 if task_type in (failing, "master") else None

    return fate


def _master_fails(code: int, times: int) -> Fate:
    return lambda task_type, _, failed: (code if failed < times else 0) if task_type == "master" else None


ONE = {"a": {"quota": {"jobs": "1"}}}
RESTARTS = {"torchTaskSpecs": pair(restartPolicy="OnFailure")}
VOLCANO = {"schedulingPolicy": {"gangScheduler": "volcano"}}
GANG = {"torchTaskSpecs": {"Master": task(), "Worker": task(2)}, **VOLCANO}
"""Workers wait for the master to run: all are bound at once, and their gates opened one after the other."""
WITH_BOARD = {"torchTaskSpecs": {"Board": task(), "Master": task(), "Worker": task()}}
_AFTER = [{"taskType": "Prepare", "phase": "Succeeded"}]
STAGED = {"torchTaskSpecs": {"Prepare": task(), "Master": task(dependsOn=_AFTER), "Worker": task(2)}}
"""Three pods at once at most, of four."""

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
    Scenario(
        name="gang",
        queues=ONE,
        jobs={"one": {**WITH_BOARD, **VOLCANO}, "two": {**GANG, "cleanPodPolicy": "All"}},
        ends={"one": "Succeeded", "two": "Succeeded"},
        fate=lambda task_type, *_: None if task_type == "board" else 0,
        strangers=True,
    ),
    Scenario(
        name="staged",
        queues={"a": {"quota": {"cpu": "3"}}},
        jobs={"one": {**STAGED, **VOLCANO}, "two": STAGED},
        ends={"one": "Succeeded", "two": "Succeeded"},
    ),
    Scenario(
        name="disrupted",
        queues=ONE,
        jobs={"one": {**RESTARTS, "backoffLimit": 0}},
        ends={"one": "Succeeded"},
        disruptions={"one": 2},
        fate=fails("worker", "Evicted", 2),
    ),
    Scenario(
        name="inplace",
        queues=ONE,
        jobs={"one": {"torchTaskSpecs": {**pair(restartPolicy="OnFailure"), "Board": task()}}},
        ends={"one": "Succeeded"},
        restarts={"one": 1},
        fate=fails("worker", 137, 1),
        settings={"in_place": "local"},
    ),
    Scenario(
        name="asked",
        queues=ONE,
        jobs={"one": {}},
        ends={"one": "Succeeded"},
        steps=(
            (phase("one", "Running"), ask("one", id="all")),
            (obeyed("one", "all"), ask("one", id="worker", task="Worker", index=0)),
            (obeyed("one", "worker"), ask("one", id="new", how="Recreate")),
        ),
        until=obeyed("one", "new"),
        requests=3,
        settings={"in_place": "local"},
    ),
    Scenario(
        name="lostnode",
        queues=ONE,
        jobs={"one": {"backoffLimit": 0}},
        ends={"one": "Succeeded"},
        disruptions={"one": 1},
        steps=((phase("one", "Running"), silence(FIRST_NODE)),),
        nodes=(FIRST_NODE, SECOND_NODE),
        bad_node=FIRST_NODE,
        settings={"dead_node_grace": 5},
        patience=20.0,
    ),
    Scenario(
        name="nogroup",
        queues=ONE,
        jobs={"one": {**GANG, "restartScope": "Task", "backoffLimit": 1}},
        ends={"one": "Succeeded"},
        restarts={"one": 1},
        fate=fails("worker", 137, 1),
        steps=(
            (phase("one", "Admitted"), lambda cluster: cluster.delete(POD_GROUPS, "one-0", NAMESPACE)),
            (phase("one", "Running"), delete_group("one", "one-0")),
        ),
        until=tampered("one"),
        tampered=True,
    ),
    Scenario(
        name="crd",
        queues=ONE,
        jobs={"one": GANG},
        ends={"one": "Succeeded"},
        steps=((said("one", "PodGroupMissing"), install_volcano),),
        missing=(POD_GROUPS, GANG_QUEUES),
        patience=90.0,
    ),
)
SCENARIOS = {each.name: each for each in _ALL}


def populate(cluster: ApiClient, scenario: Scenario) -> None:
    """Make the nodes, the queues and the jobs."""
    for name in scenario.nodes:
        status = {"conditions": [_ready("True", cluster.now)]}
        cluster.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "status": status})
    for name, spec in scenario.queues.items():
        body = {"apiVersion": TENANT_QUEUES.api_version, "kind": "TenantQueue", "metadata": {"name": name}}
        cluster.create(TENANT_QUEUES, {**body, "spec": dict(spec)})
    for name, spec in scenario.jobs.items():
        fields = dict(spec)
        body = {"apiVersion": TORCHJOBS.api_version, "kind": "TorchJob", "metadata": {"name": name}}
        policy = {"schedulingPolicy": {"queue": fields.pop("queue", "a"), **fields.pop("schedulingPolicy", {})}}
        cluster.create(TORCHJOBS, {**body, "spec": {"torchTaskSpecs": pair(), **policy, **fields}}, NAMESPACE)
    if not scenario.missing:
        install_volcano(cluster)
    if scenario.strangers:
        _populate_with_strangers(cluster, next(iter(scenario.jobs)))


def _populate_with_strangers(cluster: ApiClient, job: str) -> None:
    """What is another's, whatever it looks like."""
    uid = cluster.get(TORCHJOBS, job, NAMESPACE)["metadata"]["uid"]
    container = {"name": "torch", "image": "torch:1"}
    pod = {"apiVersion": "v1", "kind": "Pod", "spec": {"containers": [container]}}
    cluster.create(PODS, {**pod, "metadata": {"name": f"{job}-master-0", "labels": {labels.JOB_UID: uid}}}, ELSEWHERE)
    over = {"status": {"phase": "Succeeded"}}
    cluster.patch(PODS, f"{job}-master-0", over, ELSEWHERE, subresource="status")  # takes no room, whoever pays
    group = {"apiVersion": POD_GROUPS.api_version, "kind": POD_GROUPS.kind, "spec": {"minMember": 99}}
    cluster.create(POD_GROUPS, {**group, "metadata": {"name": f"{job}-7"}}, NAMESPACE)
    cluster.create(POD_GROUPS, {**group, "metadata": {"name": f"{job}-0", "labels": {labels.JOB_UID: uid}}}, ELSEWHERE)
