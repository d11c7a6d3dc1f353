"""The CustomResourceDefinitions of torchq on any API server: each cell of the field table, CEL rule, default and
printer column.

Tests of the field table and the rules that need no server are in tests/crds.
"""

import copy
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from crds import generate, tenantqueue
from crds.api_resources import TENANT_QUEUES, TORCHJOBS
from crds.resources import resource_names
from crds.schema import change_rules
from crds.schema.change_rules import DEADLINE, TABLE, SpecField, State
from crds.torchjob import checks, launched_processes
from crds.torchjob.tasks import COUNTED_IN_BYTES, TASK_TYPE
from kube import errors
from kube.client import KubernetesCluster
from tests.crds.schema.test_change_rules import ADMISSION, STATUS, changes, is_resumed, is_sooner, named, with_field
from tests.support.crds.builders import job, queue, task
from tests.support.kube.servers import Server

_NUMBERS = itertools.count(1)
TORCHJOB, TENANT_QUEUE, *_ = generate.load()
QUEUE_DEFAULTS = {
    "spec.weight": 1,
    "spec.ordering": "BestEffortFIFO",
    "spec.stopPolicy": "None",
    "spec.agingSeconds": 600,
}


def submitted(manifest: dict[str, Any], name: str = "") -> dict[str, Any]:
    """Return a manifest as a user submits it, without the fields that the server sets."""
    body = copy.deepcopy({key: value for key, value in manifest.items() if key != "status"})
    body["metadata"] = {"name": name or body["metadata"]["name"]}
    return body


def fresh(word: str) -> str:
    return f"{word}-{next(_NUMBERS)}"


def schema(definition: dict[str, Any]) -> dict[str, Any]:
    (version,) = definition["spec"]["versions"]
    found: dict[str, Any] = version["schema"]["openAPIV3Schema"]
    return found


def nodes(node: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    yield path, node
    for name, child in node.get("properties", {}).items():
        yield from nodes(child, f"{path}.{name}".lstrip("."))
    for name in ("items", "additionalProperties"):
        if isinstance(node.get(name), dict):
            yield from nodes(node[name], f"{path}.*")


# The field table.


@pytest.mark.parametrize("state", STATUS)
@pytest.mark.parametrize("field", TABLE, ids=lambda field: field.path)
def test_job_field_changes_only_in_the_states_of_the_field_table(
    server: Server, cluster: KubernetesCluster, namespace: str, field: SpecField, state: State
) -> None:
    statuses = STATUS[state][-1:] if server.embedded else STATUS[state]  # tests/crds tests each status without a server
    for status, (before, after) in itertools.product(statuses, changes(field.path)):
        name = fresh("cell")
        stored = cluster.create(TORCHJOBS, submitted(with_field(field.path, before, None), name), namespace)
        if status:
            stored = cluster.patch(TORCHJOBS, name, {"status": status}, namespace, subresource="status")
        wanted = submitted(with_field(field.path, after, None), name)["spec"]
        patch = [{"op": "replace", "path": "/spec", "value": wanted}]
        if (field.path, status) == (DEADLINE, {"phase": "Queued"}):
            continue  # covered by the next test
        if field.may_change(state) or is_sooner(field, state, before, after) or is_resumed(field, state, after):
            changed = cluster.patch(TORCHJOBS, name, patch, namespace)
            assert changed["spec"] == wanted
            assert changed["metadata"]["generation"] == 2
            continue
        with pytest.raises(errors.Invalid) as refusal:
            cluster.patch(TORCHJOBS, name, patch, namespace)
        (cause,) = refusal.value.causes
        assert cause.field == "spec"
        assert f": {named(field, state)} may not change" in cause.message
        assert cluster.get(TORCHJOBS, name, namespace) == stored


@pytest.mark.parametrize("status", [{"phase": "Queued"}, {"phase": "Admitted", "admission": ADMISSION}])
def test_deadline_of_a_queued_or_admitted_job_can_only_become_earlier(
    cluster: KubernetesCluster, namespace: str, status: dict[str, Any]
) -> None:
    name = fresh("deadline")
    cluster.create(TORCHJOBS, submitted(with_field(DEADLINE, 60, None), name), namespace)
    cluster.patch(TORCHJOBS, name, {"status": status}, namespace, subresource="status")
    for later in (61, None):
        with pytest.raises(errors.Invalid, match=r"activeDeadlineSeconds may not .* set spec.suspend to true"):
            cluster.patch(TORCHJOBS, name, {"spec": {DEADLINE: later}}, namespace)
    assert cluster.patch(TORCHJOBS, name, {"spec": {DEADLINE: 59}}, namespace)["spec"][DEADLINE] == 59
    cluster.patch(TORCHJOBS, name, {"spec": {"suspend": True}}, namespace)
    suspended = {"status": {"phase": "Suspended", "admission": None}}
    cluster.patch(TORCHJOBS, name, suspended, namespace, subresource="status")
    assert cluster.patch(TORCHJOBS, name, {"spec": {DEADLINE: 61}}, namespace)["spec"][DEADLINE] == 61


@pytest.mark.parametrize("after", [False, None])
def test_a_cancellation_is_never_taken_back(cluster: KubernetesCluster, namespace: str, after: bool | None) -> None:
    cluster.create(TORCHJOBS, submitted(job("train", cancel=True)), namespace)
    with pytest.raises(errors.Invalid, match=change_rules.NOT_TAKEN_BACK):
        cluster.patch(TORCHJOBS, "train", {"spec": {"cancel": after}}, namespace)


def test_admitted_elastic_job_can_be_resized_within_its_bounds(cluster: KubernetesCluster, namespace: str) -> None:
    """The test shows that a server accepts such a rule; `tests/crds/schema/test_change_rules.py` covers each case
    without a server.
    """
    elastic = job(torchElasticPolicy={"numMinReplicas": 1, "numMaxReplicas": 3})
    cluster.create(TORCHJOBS, submitted(elastic, "elastic"), namespace)
    cluster.patch(TORCHJOBS, "elastic", {"status": STATUS["admitted"][-1]}, namespace, subresource="status")
    size = {"spec": {"replicas": 3}}
    assert cluster.patch(TORCHJOBS, "elastic", size, namespace, subresource="scale")["spec"] == size["spec"]
    with pytest.raises(errors.Invalid, match="must be from 1 to 3"):
        cluster.patch(TORCHJOBS, "elastic", {"spec": {"replicas": 4}}, namespace, subresource="scale")


# The rules.


@dataclass(frozen=True)
class Example:
    """An object that a rule refuses, and the most similar object that the rule accepts."""

    refused: dict[str, Any]
    accepted: dict[str, Any]
    field: str
    """The field that the refusal names."""


def tasks(**declared: Any) -> dict[str, Any]:
    return {"torchTaskSpecs": declared}


MODEL = {"modelName": "a", "version": "1", "path": "team/a/model"}


def jobs(refused: dict[str, Any], accepted: dict[str, Any], field: str, name: str = "train") -> Example:
    return Example(submitted(job(name, **refused)), submitted(job(name, **accepted)), field)


def queues(refused: dict[str, Any], accepted: dict[str, Any], field: str) -> Example:
    return Example(queue("team", **refused), queue("team", **accepted), field)


def dependent(task_type: str, upstream: str, field: str) -> Example:
    """Return a job whose task depends on itself or on an unknown task, and a job whose task depends on a known task."""
    other = "Master" if task_type != "Master" else "Worker"
    wrong, right = task(dependsOn=[{"taskType": upstream}]), task(dependsOn=[{"taskType": other}])
    return jobs(tasks(**{task_type: wrong, other: task()}), tasks(**{task_type: right, other: task()}), field)


def endless(task_type: str, field: str) -> Example:
    """Return a job whose task waits for the success of a task that never ends, and a job whose task waits until that
    task runs.
    """
    other = "Master" if task_type != "Master" else "Worker"
    service = task(restartPolicy="Always")
    if task_type == "AIMaster":  # the template may set the policy, too
        service = task()
        service["template"]["spec"]["restartPolicy"] = "Always"
    wrong, right = (task(dependsOn=[{"taskType": other, "phase": phase}]) for phase in ("Succeeded", "Running"))
    return jobs(tasks(**{task_type: wrong, other: service}), tasks(**{task_type: right, other: service}), field)


def members(task_type: str, least: int, declared: int, field: str) -> Example:
    """Return jobs with a wrong and a right minMembers of a task; `declared` 0 leaves the task undeclared."""
    there = {task_type: task(numTasks=declared)} if declared else {"Any": task()}
    fitting = {task_type: task(numTasks=1)}
    wrong = {**tasks(**there), "minMembers": {task_type: least}}
    return jobs(wrong, {**tasks(**fitting), "minMembers": {task_type: 1}}, field)


def amounts(path: str, kind: str, name: str, quantity: str) -> dict[str, Any]:
    """Return a task with a quantity of a container, of an init container, or of the pod."""
    found = task(template={"spec": {"containers": [{"name": "a"}], "initContainers": [{"name": "b"}]}})
    pod = found["template"]["spec"]
    (pod[path.split(".")[1]][0] if path else pod)["resources"] = {kind: {name: quantity}}
    return tasks(Ps=found)


TASKS = "spec.torchTaskSpecs"
POD = f"{TASKS}.*.template.spec"
KEYS = f"every key must match {TASK_TYPE}"
RULES: dict[tuple[str, str, str], Example] = {
    # Keys: the schema node of the rule, its message, and its fieldPath.
    (TASKS, checks.SPELLING, ""): jobs(tasks(worker=task()), tasks(Worker=task()), TASKS),
    (TASKS, KEYS, ""): jobs(tasks(**{"1a": task()}), tasks(a1=task()), TASKS),
    ("spec.minMembers", KEYS, ""): jobs(
        tasks(Worker=task()) | {"minMembers": {"1a": 1}},
        tasks(Worker=task()) | {"minMembers": {"Worker": 1}},
        "spec.minMembers",
    ),
    (TASKS, checks.TWINS, ""): jobs(tasks(Ps=task(), pS=task()), tasks(Ps=task(), pSx=task()), TASKS),
    (f"{TASKS}.*", checks.MANY_SPOT_TASKS, ".spotTaskSpec.numSpotTasks"): jobs(
        tasks(Worker=task(numTasks=2, spotTaskSpec={"numSpotTasks": 3})),
        tasks(Worker=task(numTasks=2, spotTaskSpec={"numSpotTasks": 2})),
        f"{TASKS}[Worker].spotTaskSpec.numSpotTasks",
    ),
    ("spec.torchElasticPolicy", checks.ELASTIC_RANGE, ".numMinReplicas"): jobs(
        {"torchElasticPolicy": {"numMinReplicas": 3, "numMaxReplicas": 2}},
        {"torchElasticPolicy": {"numMinReplicas": 2, "numMaxReplicas": 2}},
        "spec.torchElasticPolicy.numMinReplicas",
    ),
    ("spec.torchElasticPolicy", checks.NO_MAXIMUM, ".autoscale"): jobs(
        {"torchElasticPolicy": {"numMinReplicas": 1, "autoscale": "Idle"}},
        {"torchElasticPolicy": {"numMaxReplicas": 2, "autoscale": "Idle"}},
        "spec.torchElasticPolicy.autoscale",
    ),
    ("spec.torchElasticPolicy", checks.NOTHING_TO_SCALE, ".autoscale"): jobs(
        {"torchElasticPolicy": {"numMinReplicas": 2, "numMaxReplicas": 2, "autoscale": "Idle"}},
        {"torchElasticPolicy": {"numMinReplicas": 1, "numMaxReplicas": 2, "autoscale": "Idle"}},
        "spec.torchElasticPolicy.autoscale",
    ),
    ("spec.health.hangTimeoutSeconds", checks.SHORT_HANG, ""): jobs(
        {"health": {"hangTimeoutSeconds": 59}}, {"health": {"hangTimeoutSeconds": 60}}, "spec.health.hangTimeoutSeconds"
    ),
    ("spec", checks.NO_WORKER, ".torchElasticPolicy"): jobs(
        tasks(Master=task()) | {"torchElasticPolicy": {}},
        tasks(Worker=task()) | {"torchElasticPolicy": {}},
        "spec.torchElasticPolicy",
    ),
    ("spec", checks.NO_ROOM_FOR_STORE, ".torchTaskSpecs"): jobs(
        tasks(Worker=task(), rendezvous=task()) | {"torchElasticPolicy": {}},
        tasks(Worker=task(), Rendezvous=task()) | {"torchElasticPolicy": {}},
        TASKS,
    ),
    ("spec", checks.WORKER_BOUNDS, ".torchTaskSpecs.Worker.numTasks"): jobs(
        {"torchElasticPolicy": {"numMinReplicas": 3, "replicaStep": 2}},
        {"torchElasticPolicy": {"numMinReplicas": 1}},
        f"{TASKS}[Worker].numTasks",
    ),
    ("spec", checks.MANY_LEAST_WORKERS, ".minMembers.Worker"): jobs(
        {"torchElasticPolicy": {"numMinReplicas": 1}, "minMembers": {"Worker": 2}},
        {"torchElasticPolicy": {"numMinReplicas": 2}, "minMembers": {"Worker": 2}},
        "spec.minMembers[Worker]",
    ),
    ("spec", checks.LONG_SHUTDOWN, ".torchElasticPolicy.shutdownTimeoutSeconds"): jobs(
        {"torchElasticPolicy": {"shutdownTimeoutSeconds": 30}},
        {"torchElasticPolicy": {"shutdownTimeoutSeconds": 29}},
        "spec.torchElasticPolicy.shutdownTimeoutSeconds",
    ),
    ("spec", checks.MODEL_TWICE, ".modelInputs"): jobs(
        {"modelInputs": [MODEL, {**MODEL, "version": "2"}]},
        {"modelInputs": [MODEL, {**MODEL, "modelName": "b"}]},
        "spec.modelInputs",
    ),
    ("spec.nprocPerNode", launched_processes.WRONG, ""): jobs(
        {"nprocPerNode": "8"}, {"nprocPerNode": 8}, "spec.nprocPerNode"
    ),
    ("spec.torchElasticPolicy.nprocPerNode", launched_processes.WRONG, ""): jobs(
        {"torchElasticPolicy": {"nprocPerNode": 1025}},
        {"torchElasticPolicy": {"nprocPerNode": "gpu"}},
        "spec.torchElasticPolicy.nprocPerNode",
    ),
    ("spec", launched_processes.ONE_VALUE, ".nprocPerNode"): jobs(
        {"nprocPerNode": "gpu", "torchElasticPolicy": {"nprocPerNode": 8}},
        {"nprocPerNode": "gpu", "torchElasticPolicy": {"nprocPerNode": "gpu"}},
        "spec.nprocPerNode",
    ),
    **{
        ("spec", checks.UNKNOWN_UPSTREAM, f".torchTaskSpecs.{name}.dependsOn"): dependent(
            name, name, f"{TASKS}[{name}].dependsOn"
        )
        for name in ("Master", "Worker", "AIMaster")
    },
    ("spec", checks.UNKNOWN_UPSTREAM, ".torchTaskSpecs"): dependent("Ps", "Nobody", TASKS),
    **{
        ("spec", checks.ENDLESS_UPSTREAM, f".torchTaskSpecs.{name}.dependsOn"): endless(
            name, f"{TASKS}[{name}].dependsOn"
        )
        for name in ("Master", "Worker", "AIMaster")
    },
    ("spec", checks.ENDLESS_UPSTREAM, ".torchTaskSpecs"): endless("Ps", TASKS),
    ("spec", checks.ONE_MASTER, ".torchTaskSpecs.Master.numTasks"): jobs(
        tasks(Master=task(numTasks=2)), tasks(Master=task(numTasks=1)), f"{TASKS}[Master].numTasks"
    ),
    **{
        ("spec", checks.UNKNOWN_MEMBER, f".minMembers.{name}"): members(name, 1, 0, f"spec.minMembers[{name}]")
        for name in ("Master", "Worker", "AIMaster")
    },
    ("spec", checks.UNKNOWN_MEMBER, ".minMembers"): members("Ps", 1, 0, "spec.minMembers"),
    **{
        ("spec", checks.MANY_MEMBERS, f".minMembers.{name}"): members(name, 2, 1, f"spec.minMembers[{name}]")
        for name in ("Master", "Worker", "AIMaster")
    },
    ("spec", checks.MANY_MEMBERS, ".minMembers"): members("Ps", 3, 2, "spec.minMembers"),
    **{
        (f"{POD}{path}.resources.{kind}.{name}", resource_names.FEW_BYTES, ""): jobs(
            amounts(path, kind, name, "0.5M"),
            amounts(path, kind, name, "512Mi"),
            f"{POD.replace('.*', '[Ps]')}{path.replace('.*', '[0]')}.resources.{kind}.{name}",
        )
        for path, kind, name in itertools.product(
            (".containers.*", ".initContainers.*", ""), ("requests", "limits"), COUNTED_IN_BYTES
        )
    },
    ("", checks.LONG_POD_NAME, ".spec.torchTaskSpecs"): jobs(
        tasks(**{"A" * 20: task(numTasks=2)}, **{"B" * 20: task(numTasks=100)}),
        tasks(**{"A" * 20: task(numTasks=10)}, **{"B" * 20: task(numTasks=10)}),
        TASKS,
        name="a" * 40,
    ),
    **{
        (f"spec.{name}", message, ""): queues(with_it | {name: wrong}, with_it | {name: right}, f"spec.{name}")
        for name, with_it in (("quota", {}), ("borrowingLimit", {"cohort": "c", "quota": {"cpu": 1}}))
        for message, wrong, right in (
            (tenantqueue.UNCOUNTED, {"limits.cpu": 1}, {"requests.cpu": 1}),
            (tenantqueue.TWICE, {"cpu": 1, "requests.cpu": 1}, {"cpu": 1, "requests.memory": "1Gi"}),
            (resource_names.UNKNOWN, {"gpu": 1}, {"requests.nvidia.com/gpu": 1}),
            (resource_names.DIVIDED, {"nvidia.com/gpu": "1.5"}, {"cpu": "1.5", "nvidia.com/gpu": "1k"}),
            (resource_names.FEW_BYTES, {"memory": "1e3"}, {"memory": "1e9"}),
            (resource_names.MANY_CPUS, {"cpu": 5_000_000}, {"cpu": 5}),
        )
    },
    ("spec", tenantqueue.NO_QUOTA, ".cohort"): queues(
        {"cohort": "c"}, {"cohort": "c", "quota": {"cpu": 1}}, "spec.cohort"
    ),
    ("spec", tenantqueue.NOT_LISTED, ".gangQueue"): queues(
        {"gangQueues": ["a"], "gangQueue": "b"}, {"gangQueues": ["a", "b"], "gangQueue": "b"}, "spec.gangQueue"
    ),
    ("spec", tenantqueue.NO_COHORT, ".borrowingLimit"): queues(
        {"quota": {"cpu": 1}, "borrowingLimit": {"cpu": 1}},
        {"quota": {"cpu": 1}, "borrowingLimit": {"cpu": 1}, "cohort": "c"},
        "spec.borrowingLimit",
    ),
}


def said(rule: dict[str, str]) -> set[str]:
    """Return the messages of a rule; a rule with two conditions has a message for each condition."""
    words = rule.get("messageExpression", "")
    return {rule["message"]} | {each for each in (checks.ENDLESS_UPSTREAM, checks.MANY_MEMBERS) if repr(each) in words}


def declared_rules() -> set[tuple[str, str, str]]:
    return {
        (path, message, rule.get("fieldPath", ""))
        for definition in (TORCHJOB, TENANT_QUEUE)
        for path, node in nodes(schema(definition))
        for rule in node.get("x-kubernetes-validations", [])
        for message in said(rule)
    }


def test_each_cel_rule_has_examples() -> None:
    # The transition rules are tested above, with the cells of the table and as a change.
    transition = {("", change_rules.CHANGE_REFUSED, ".spec"), ("", change_rules.NOT_TAKEN_BACK, ".spec")}
    assert RULES.keys() | transition == declared_rules()
    assert not RULES.keys() & transition


@pytest.mark.parametrize(
    "rule", RULES, ids=[f"{path or 'root'}-{field}-{n}" for n, (path, _, field) in enumerate(RULES)]
)
def test_each_cel_rule_refuses_and_accepts_its_examples(
    cluster: KubernetesCluster, namespace: str, rule: tuple[str, str, str]
) -> None:
    _, message, _ = rule
    example = RULES[rule]
    resource = TORCHJOBS if example.refused["kind"] == "TorchJob" else TENANT_QUEUES
    with pytest.raises(errors.Invalid) as refusal:
        cluster.create(resource, example.refused, namespace if resource.namespaced else "", dry_run=True)
    assert any(
        each.field == example.field and f": {message}:" in f"{each.message}:" for each in refusal.value.causes
    ), refusal.value.causes
    accepted = cluster.create(resource, example.accepted, namespace if resource.namespaced else "", dry_run=True)
    assert accepted["metadata"]["name"] == example.accepted["metadata"]["name"]


# The defaults.


def test_definitions_declare_the_tested_defaults() -> None:
    found = {path: node["default"] for path, node in nodes(schema(TENANT_QUEUE)) if "default" in node}
    assert {path: value for path, value in found.items() if path != "spec"} == QUEUE_DEFAULTS
    assert [path for path, node in nodes(schema(TORCHJOB)) if "default" in node] == []


@pytest.mark.parametrize("given", [None, {}, {"weight": 7, "stopPolicy": "Hold"}])
def test_server_sets_the_defaults_of_a_queue(cluster: KubernetesCluster, given: dict[str, Any] | None) -> None:
    body = queue(fresh("defaults"))
    del body["spec"]
    made = cluster.create(TENANT_QUEUES, body | ({"spec": given} if given is not None else {}))
    wanted = {path.removeprefix("spec."): value for path, value in QUEUE_DEFAULTS.items()} | (given or {})
    assert made["spec"] == wanted
    assert cluster.get(TENANT_QUEUES, made["metadata"]["name"])["spec"] == wanted
    emptied = cluster.patch(TENANT_QUEUES, made["metadata"]["name"], {"spec": dict.fromkeys(wanted)})
    assert emptied["spec"] == {path.removeprefix("spec."): value for path, value in QUEUE_DEFAULTS.items()}
    cluster.delete(TENANT_QUEUES, made["metadata"]["name"])


def test_server_sets_no_defaults_in_a_job(cluster: KubernetesCluster, namespace: str) -> None:
    body = submitted(job())
    assert cluster.create(TORCHJOBS, body, namespace)["spec"] == body["spec"]


# The columns.

TABLES = "application/json;as=Table;v=v1;g=meta.k8s.io"
COLUMNS = {
    "TorchJob": {
        "Name": "train",
        "Phase": "Running",
        "Queue": "team",
        "Workers": 1,
        "Wanted": 2,
        "Attempt": 2,
        "Restarts": 3,
        "Admitted": "Admitted",
        "Running": "GangNotWhole",
    },
    "TenantQueue": {
        "Name": "team",
        "Weight": 5,
        "Pending": 4,
        "Admitted": 3,
        "Share": "66%",
        "Target": "75%",
        "Stop": "Hold",
    },
}
STATUSES = {
    "TorchJob": {
        "phase": "Running",
        "tenantQueue": "team",
        "attempt": 2,
        "restartCount": 3,
        "admission": ADMISSION | {"workers": 1},
        "conditions": [
            {"type": kind, "status": "True", "reason": reason, "lastTransitionTime": "2026-01-02T03:04:05Z"}
            for kind, reason in (("Admitted", "Admitted"), ("Running", "GangNotWhole"))
        ],
    },
    "TenantQueue": {"pending": 4, "admitted": 3, "share": "66%", "target": "75%"},
}


def table(server: Server, path: str) -> dict[str, Any]:
    code, answer = server.send("GET", path, Accept=TABLES)
    assert code == 200, answer
    if server.embedded and answer["kind"] != "Table":
        pytest.skip("the embedded API server answers no tables yet")
    found: dict[str, Any] = answer
    return found


@pytest.mark.parametrize("definition", [TORCHJOB, TENANT_QUEUE], ids=["TorchJob", "TenantQueue"])
def test_each_printer_column_shows_its_value(
    server: Server, cluster: KubernetesCluster, namespace: str, definition: dict[str, Any]
) -> None:
    kind = definition["spec"]["names"]["kind"]
    resource, place = (TORCHJOBS, namespace) if kind == "TorchJob" else (TENANT_QUEUES, "")
    body = submitted(job("train")) if kind == "TorchJob" else queue("team", weight=5, stopPolicy="Hold")
    cluster.create(resource, body, place)
    cluster.patch(resource, body["metadata"]["name"], {"status": STATUSES[kind]}, place, subresource="status")
    try:
        found = table(server, resource.path(place))
        declared = definition["spec"]["versions"][0]["additionalPrinterColumns"]
        assert [(each["name"], each["type"], each["priority"]) for each in found["columnDefinitions"]] == [
            ("Name", "string", 0),
            *((each["name"], each["type"], each.get("priority", 0)) for each in declared),
        ]
        (row,) = (each for each in found["rows"] if each["object"]["metadata"]["name"] == body["metadata"]["name"])
        cells = dict(zip((each["name"] for each in found["columnDefinitions"]), row["cells"], strict=True))
        assert cells.pop("Age").endswith("s")
        assert cells == COLUMNS[kind]
        one = table(server, resource.path(place, body["metadata"]["name"]))
        assert [each["cells"][:-1] for each in one["rows"]] == [row["cells"][:-1]]
    finally:
        cluster.delete(resource, body["metadata"]["name"], place)
