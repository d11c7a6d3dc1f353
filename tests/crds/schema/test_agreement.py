"""The models and the CustomResourceDefinitions accept the same TorchJobs and TenantQueues."""

import copy
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from crds import tenantqueue
from crds.errors import InvalidObject
from crds.resources import resource_names
from crds.resources.quantities import exact
from crds.torchjob import torchjob
from tests.crds.torchjob.test_torchjob import REFUSED
from tests.support.crds import served
from tests.support.crds.builders import job, queue, task, template

ONLY_IN_PYTHON = (
    "dependency cycle",
    "is not a quantity",
    "asks for no GPU",
    "memory that the main",
    "asks for memory",
    "asks for no memory",
)
"""Messages of problems that no rule of the definition detects: cycles, and errors within the opaque pod template."""
ONLY_ON_THE_SERVER = "spec.backoffLimit in body should be less than or equal to"
"""The message of a refusal that the models lack: a larger value stored by an older version counts as the largest."""

restart_policies = st.sampled_from(["Always", "OnFailure", "ExitCode", "Never"])
task_types = st.one_of(
    st.sampled_from(["Master", "Worker", "AIMaster"]), st.from_regex(r"[A-Za-z][A-Za-z0-9]{0,19}", fullmatch=True)
)
names = st.from_regex(r"[a-z]([-a-z0-9]{0,37}[a-z0-9])?", fullmatch=True)
queue_names = st.from_regex(r"[a-z0-9]([-a-z0-9]{0,60}[a-z0-9])?", fullmatch=True)
quantities = st.from_regex(r"[0-9]{1,6}(\.[0-9]{1,3})?(m|k|M|G|Ki|Mi|Gi|e[0-9])?", fullmatch=True)


@st.composite
def tasks(draw: st.DrawFn) -> dict[str, Any]:
    """Draw up to four tasks. Each task depends on some of the tasks before it."""
    kinds = draw(st.lists(task_types, min_size=1, max_size=4, unique_by=str.lower))
    known = {"master": "Master", "worker": "Worker", "aimaster": "AIMaster"}
    kinds = [known.get(kind.lower(), kind) for kind in kinds]
    made: dict[str, Any] = {}
    for kind in kinds:
        fields: dict[str, Any] = {}
        if kind != "Master" and draw(st.booleans()):
            fields["numTasks"] = draw(st.integers(1, 10))
        if draw(st.booleans()):
            fields["restartPolicy"] = draw(restart_policies)
        policy = draw(st.none() | restart_policies)
        if draw(st.booleans()) and made:
            upstreams = draw(st.lists(st.sampled_from(sorted(made)), max_size=2))
            fields["dependsOn"] = [{"taskType": each} for each in upstreams]
        made[kind] = task(**fields)
        if policy is not None:
            made[kind]["template"]["spec"]["restartPolicy"] = policy
    return made


@st.composite
def jobs(draw: st.DrawFn) -> dict[str, Any]:
    """Draw a valid TorchJob."""
    declared = draw(tasks())
    spec: dict[str, Any] = {"torchTaskSpecs": declared}
    members = draw(st.lists(st.sampled_from(sorted(declared)), unique=True))
    optional: dict[str, Any] = {
        "minMembers": {kind: draw(st.integers(1, declared[kind].get("numTasks", 1))) for kind in members},
        "schedulingPolicy": {"queue": draw(queue_names), "priority": draw(st.integers(-1000, 1000))},
        "nprocPerNode": draw(st.integers(1, 1024)),
        "restartScope": draw(st.sampled_from(["Task", "Job"])),
        "backoffLimit": draw(st.integers(0, 100)),
        "activeDeadlineSeconds": draw(st.integers(1, 10**6)),
        "ttlSecondsAfterFinished": draw(st.integers(0, 10**6)),
        "cleanPodPolicy": draw(st.sampled_from(["Running", "All", "None"])),
        "suspend": draw(st.booleans()),
        "health": {"hangTimeoutSeconds": draw(st.sampled_from([0, 60])), "onHang": "Restart", "firstStepSeconds": 1},
    }
    workers = declared.get("Worker", {}).get("numTasks", 1)
    if "Worker" in declared:
        least = draw(st.integers(optional["minMembers"].get("Worker", 1), workers))
        steps = [step for step in range(1, 5) if (workers - least) % step == 0]
        optional["torchElasticPolicy"] = {
            "numMinReplicas": least,
            "numMaxReplicas": draw(st.integers(max(workers, least + 1), 12)),
            "replicaStep": draw(st.sampled_from(steps)),
            "autoscale": draw(st.sampled_from(["Off", "Idle"])),
            "mode": draw(st.sampled_from(["Rendezvous", "InPlaceRestart"])),
        }
    chosen = draw(st.sets(st.sampled_from(sorted(optional))))
    return job(draw(names), **spec, **{name: optional[name] for name in chosen})


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path of each value in a JSON value, except within pod templates."""
    if path and path[-1] != "template":
        items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
        for step, child in items:
            yield (*path, step)
            yield from places(child, (*path, step))


strange = st.one_of(
    st.integers(-(2**40), 2**40),
    st.sampled_from([0, -1, 1, 2, 10_001, 2**31]),
    st.booleans(),
    st.sampled_from(["", "A", "Master", "Sometimes", "a" * 64, "a_b", "None", "gpu"]),
    st.lists(st.integers(0, 3), max_size=2),
    st.dictionaries(st.sampled_from(["a", "Worker", "a-b", "numTasks"]), st.integers(-1, 3), max_size=2),
)


@st.composite
def spoilt(draw: st.DrawFn) -> dict[str, Any]:
    """Draw a TorchJob, and replace, add or remove one value of its spec. The new value is strange."""
    manifest = copy.deepcopy(draw(jobs()))
    *steps, last = draw(st.sampled_from(sorted(places(manifest["spec"], ("spec",)), key=repr)))
    at = manifest
    for step in steps:
        at = at[step]
    match draw(st.sampled_from(["replace", "add", "remove"])):
        case "replace":
            at[last] = draw(strange)
        case "add" if isinstance(at, dict):
            at[draw(st.sampled_from(["Worker", "worker", "x", "a-b", "priority", "spotTaskSpec"]))] = draw(strange)
        case "remove":
            del at[last]
    return manifest


def problems(manifest: Any) -> list[str]:
    try:
        torchjob.parse_submitted(manifest)
    except InvalidObject as error:
        return [str(problem) for problem in error.problems]
    return []


def visible(found: list[str]) -> list[str]:
    return [problem for problem in found if not any(word in problem for word in ONLY_IN_PYTHON)]


def final(refused: list[str]) -> list[str]:
    return [problem for problem in refused if ONLY_ON_THE_SERVER not in problem]


@given(jobs())
def test_valid_job_is_accepted_by_model_and_definition(manifest: dict[str, Any]) -> None:
    assert problems(manifest) == []
    assert served.refusals(manifest) == []


@settings(max_examples=400)
@given(spoilt())
def test_model_and_definition_refuse_the_same_jobs(manifest: dict[str, Any]) -> None:
    found, refused = visible(problems(manifest)), final(served.refusals(manifest))
    assert bool(found) == bool(refused), (found, refused)


def test_stored_backoff_limit_above_the_maximum_counts_as_the_maximum() -> None:
    stored = job(backoffLimit=2**31 - 1)
    assert ONLY_ON_THE_SERVER in served.refusals(stored)[0]
    assert torchjob.parse(stored).spec.backoff_limit == 1000
    assert torchjob.parse(job(backoffLimit=999)).spec.backoff_limit == 999


BY_RULES = [row for row in REFUSED if row[1].get("kind") == "TorchJob" and visible(row[2])]


@pytest.mark.parametrize("manifest", [row[1] for row in BY_RULES], ids=[row[0] for row in BY_RULES])
def test_definition_refuses_the_jobs_that_parse_refuses(manifest: dict[str, Any]) -> None:
    assert served.refusals(manifest)


@pytest.mark.parametrize(
    ("length", "task_type", "count"),
    [
        (length, task_type, count)
        for length in (36, 37, 38, 40)
        for task_type, counts in {"Master": (1,), "A" * 19: (1, 10, 11), "A" * 20: (1, 10, 11, 1001, 10_000)}.items()
        for count in counts
    ],
)
def test_model_and_definition_limit_pod_names_alike(length: int, task_type: str, count: int) -> None:
    manifest = job("a" * length, torchTaskSpecs={task_type: task(numTasks=count)})
    assert bool(problems(manifest)) == bool(served.refusals(manifest))


@pytest.mark.parametrize(
    ("manifest", "refusal"),
    [
        (job(extra=1), 'unknown field "spec.extra"'),
        (
            job(torchTaskSpecs={"Master": task(numTasks=2)}),
            "spec.torchTaskSpecs[Master].numTasks: Invalid value",
        ),
        (job(minMembers={"Worker": 3}), "spec.minMembers[Worker]: Invalid value"),
        (
            job(torchTaskSpecs={"Worker": task(dependsOn=[{"taskType": "Ps"}])}),
            "spec.torchTaskSpecs[Worker].dependsOn: Invalid value",
        ),
        (
            job(torchTaskSpecs={"Worker": task(restartPolicy="x")}),
            "spec.torchTaskSpecs.Worker.restartPolicy: Unsupported value",
        ),
        (job(torchTaskSpecs={"Worker": task(numTasks=-1)}), "spec.torchTaskSpecs.Worker.numTasks: Invalid value"),
    ],
)
def test_refusal_by_the_definition_names_the_field(manifest: dict[str, Any], refusal: str) -> None:
    assert any(found.startswith(refusal) for found in served.refusals(manifest)), served.refusals(manifest)


def _is_meant(name: str, quantity: str | int) -> bool:
    return not resource_names.unmeant(name, quantity)


whole = st.from_regex(r"[0-9]{1,6}(k|M|G|Ki|Mi|Gi|e[0-9])?", fullmatch=True)
quotas = st.fixed_dictionaries(
    {},
    optional={
        **{name: quantities.filter(partial(_is_meant, name)) for name in ("cpu", "memory")},
        **dict.fromkeys(("nvidia.com/gpu", "jobs"), whole),
    },
)


@given(
    queue_names,
    st.fixed_dictionaries(
        {"weight": st.integers(1, 10**6), "quota": quotas},
        optional={"stopPolicy": st.sampled_from(["None", "Hold"]), "namespaces": st.lists(queue_names, max_size=3)},
    ),
)
def test_valid_queue_is_accepted_by_model_and_definition(name: str, spec: dict[str, Any]) -> None:
    manifest = queue(name, **spec)
    assert tenantqueue.parse(manifest).metadata.name == name
    assert served.refusals(manifest) == []


@given(
    st.one_of(
        st.text(max_size=8), st.integers(-5, 5), quantities, st.from_regex(r"[-+.0-9KMGimuneE]{0,8}", fullmatch=True)
    )
)
@example("-0")
def test_model_and_definition_accept_the_same_quantities(value: str | int) -> None:
    manifest = queue(quota={"memory": value})
    try:
        tenantqueue.parse(manifest)
        refused = False
    except InvalidObject as error:
        # A pattern cannot express that a number is too large for 64 bits.
        refused = "too large" not in str(error)
    assert refused == bool(served.refusals(manifest))


@settings(max_examples=400)
@given(
    st.sampled_from(["cpu", "memory", "ephemeral-storage", "hugepages-2Mi", "nvidia.com/gpu"]),
    st.one_of(
        st.integers(0, 2 * 10**6),
        st.from_regex(r"[+]?[0-9]{1,8}(\.[0-9]{0,3})?([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]{1,2})?", fullmatch=True),
    ),
)
@example("cpu", "1E06")
def test_definition_refuses_the_quantities_of_a_container_that_nobody_means(name: str, value: str | int) -> None:
    manifest = job(torchTaskSpecs={"Worker": task(template=template(**{name: value}))})
    assert bool(served.refusals(manifest)) != _is_meant(name, value)


limit_names = st.one_of(
    st.sampled_from(
        ["gpu", "cpu", "jobs", "pods", "count/pods", "count/jobs", "limits.cpu", "requests.cpu", "requests.gpu"]
    ),
    st.sampled_from(
        ["requests.pods", "requests.jobs", "requests.requests.cpu", "requests.requests.a/b", "a/b", "requests/a"]
    ),
    st.sampled_from(
        ["hugepages-2Mi", "requests.hugepages-2Mi", "hugepages-", "nvidia.com/gpu", "NVIDIA.com/gpu", "a//b"]
    ),
    st.from_regex(r"(requests\.)?[-.a-zA-Z0-9_/]{1,12}", fullmatch=True),
    st.text(max_size=6),
)


@given(limit_names)
def test_model_and_definition_accept_the_same_limit_names(name: str) -> None:
    manifest = queue(quota={name: 1})
    assert bool(served.refusals(manifest)) == _is_refused(manifest)


@given(st.sampled_from(["nvidia.com/gpu", "requests.a.b/c", "jobs", "pods", "count/pods", "cpu", "memory"]), quantities)
def test_model_and_definition_accept_the_same_fractions(name: str, quantity: str | int) -> None:
    manifest = queue(quota={name: quantity})
    assert bool(served.refusals(manifest)) == _is_refused(manifest)


@given(quantities)
def test_fraction_of_a_device_is_refused(quantity: str | int) -> None:
    """The test checks accepted quantities only: a whole number that needs a negative exponent may be refused, too."""
    if not _is_refused(queue(quota={"nvidia.com/gpu": quantity})):
        assert exact(quantity).denominator == 1


@given(st.integers(0, 10**12), st.sampled_from(["", ".0", "k", "M", "Ki", "e2", "000m", "E"]))
def test_whole_number_of_devices_is_accepted(number: int, suffix: str) -> None:
    assert not _is_refused(queue(quota={"nvidia.com/gpu": f"{number}{suffix}"}))


def _is_refused(manifest: dict[str, Any]) -> bool:
    try:
        tenantqueue.parse(manifest)
    except InvalidObject:
        return True
    return False
