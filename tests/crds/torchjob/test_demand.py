"""A pod's demand equals the sum that the Kubernetes scheduler computes."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crds.torchjob import demand, torchjob
from crds.torchjob.demand import HostPort
from tests.support.crds import builders

Resources = dict[str, dict[str, Any]]


def container(
    requests: dict[str, Any] | None = None, limits: dict[str, Any] | None = None, **more: Any
) -> dict[str, Any]:
    return {"name": "c", "resources": {"requests": requests or {}, "limits": limits or {}}, **more}


def sidecar(**requests: Any) -> dict[str, Any]:
    return container(requests, restartPolicy="Always")


GPUS: dict[str, Any] = {"nvidia.com/gpu": 8}
AMOUNTS = st.dictionaries(st.sampled_from(["cpu", "memory", "hugepages-2Mi", "nvidia.com/gpu"]), st.integers(0, 9))
POD_RESOURCES = st.fixed_dictionaries({}, optional={"requests": AMOUNTS, "limits": AMOUNTS})
POD_TABLE: list[tuple[str, dict[str, Any], dict[str, int]]] = [
    ("no requests", {"containers": [{"name": "c"}]}, {}),
    ("sum of containers", {"containers": [container({"cpu": "1"}), container({"cpu": "500m"})]}, {"cpu": 1500}),
    (
        "limits replace missing requests",
        {"containers": [container(limits={"cpu": 2, "nvidia.com/gpu": 1})]},
        {"cpu": 2000, "nvidia.com/gpu": 1},
    ),
    (
        "requests precede limits",
        {"containers": [container({"cpu": "1"}, {"cpu": "4", "memory": "1Ki"})]},
        {"cpu": 1000, "memory": 1024},
    ),
    (
        "a larger init container",
        {"initContainers": [container({"cpu": "3"}), container({"cpu": "2"})], "containers": [container({"cpu": "1"})]},
        {"cpu": 3000},
    ),
    (
        "each resource by itself",
        {"initContainers": [container({"cpu": "3"})], "containers": [container({"memory": "5"})]},
        {"cpu": 3000, "memory": 5},
    ),
    (
        "a sidecar runs with the containers",
        {"initContainers": [sidecar(cpu="1")], "containers": [container({"cpu": "2"})]},
        {"cpu": 3000},
    ),
    (
        "an init container runs beside the sidecars before it",
        {
            "initContainers": [sidecar(cpu="1"), container({"cpu": "4"}), sidecar(cpu="1")],
            "containers": [container({"cpu": "2"})],
        },
        {"cpu": 5000},
    ),
    (
        "a sidecar after an init container does not add to it",
        {"initContainers": [container({"cpu": "4"}), sidecar(cpu="1")], "containers": [container({"cpu": "2"})]},
        {"cpu": 4000},
    ),
    (
        "overhead comes on top",
        {
            "overhead": {"cpu": "250m"},
            "initContainers": [container({"cpu": "3"})],
            "containers": [container({"cpu": "1"})],
        },
        {"cpu": 3250},
    ),
    (
        "requests of the pod replace the sum",
        {"resources": {"requests": {"cpu": "1"}}, "containers": [container({"cpu": "3", "nvidia.com/gpu": 1})]},
        {"cpu": 1000, "nvidia.com/gpu": 1},
    ),
    (
        "limits of the pod count where no container has requests",
        {"resources": {"limits": {"cpu": "4", "memory": "8"}}, "containers": [container({"cpu": "3"})]},
        {"cpu": 3000, "memory": 8},
    ),
    (
        "devices of the pod itself are not counted, since no API server supports them",
        {"resources": {"requests": {"nvidia.com/gpu": 0, "hugepages-2Mi": "2Mi"}}, "containers": [container(GPUS)]},
        {"nvidia.com/gpu": 8, "hugepages-2Mi": 2**21},
    ),
    ("nulls", {"containers": [{"name": "c", "resources": None}], "initContainers": None, "overhead": None}, {}),
]


@pytest.mark.parametrize(("spec", "expected"), [row[1:] for row in POD_TABLE], ids=[row[0] for row in POD_TABLE])
def test_pod_demand_matches_the_scheduler(spec: dict[str, Any], expected: dict[str, int]) -> None:
    assert demand.pod_demand(spec) == expected | {"pods": 1}


def charged(pod_spec: dict[str, Any]) -> dict[str, int]:
    """Return the charge of a job with one pod of this spec."""
    template = {"spec": {"containers": [], **pod_spec}}
    charge = dict(torchjob.parse(builders.job(torchTaskSpecs={"Master": builders.task(template=template)})).spec.charge)
    assert charge.pop("jobs") == 1
    return charge


@pytest.mark.parametrize(
    ("resources", "charge"),
    [
        ({"requests": {"nvidia.com/gpu": 0, "cpu": "1m"}}, {"cpu": 4000, "nvidia.com/gpu": 8}),
        ({"limits": {"nvidia.com/gpu": 0, "cpu": "1m"}}, {"cpu": 4000, "nvidia.com/gpu": 8}),
        ({"requests": {"cpu": "6"}}, {"cpu": 6000, "nvidia.com/gpu": 8}),
        ({"limits": {"memory": "1Ki"}, "requests": {"memory": "2Ki"}}, {"cpu": 4000, "memory": 2048, **GPUS}),
        ({"requests": {"nvidia.com/gpu": 9}, "limits": {"cpu": "5"}}, {"cpu": 5000, "nvidia.com/gpu": 9}),
        ({}, {"cpu": 4000, "nvidia.com/gpu": 8}),
        (None, {"cpu": 4000, "nvidia.com/gpu": 8}),
    ],
)
def test_charge_is_the_larger_of_pod_and_container_requests(
    resources: dict[str, Any] | None, charge: dict[str, int]
) -> None:
    """An API server without support for resources of the pod drops this field. Then the requests of the containers
    count.
    """
    asked = container({"cpu": "4"}, GPUS)
    assert charged({"resources": resources, "containers": [asked]}) == charge | {"pods": 1}
    overhead = {**charge, "cpu": charge["cpu"] + 500, "pods": 1}
    assert charged({"resources": resources, "containers": [asked], "overhead": {"cpu": "500m"}}) == overhead


@given(resources=POD_RESOURCES, asked=POD_RESOURCES)
def test_pod_demand_never_exceeds_the_charge_even_without_pod_resources(
    resources: dict[str, Any], asked: dict[str, Any]
) -> None:
    spec = {"containers": [{"name": "c", "image": "i", "resources": asked}], "resources": resources}
    charge = charged(spec)
    for taken in (demand.pod_demand(spec), demand.pod_demand({**spec, "resources": None})):
        assert all(charge.get(name, 0) >= amount for name, amount in taken.items())


def test_charge_covers_all_pods_and_one_job() -> None:
    tasks = {
        "Master": builders.task(template=builders.template(cpu="1")),
        "Worker": builders.task(numTasks=3, template=builders.template(cpu="500m", **{builders.GPU: 2})),
    }
    spec = torchjob.parse(builders.job(torchTaskSpecs=tasks)).spec
    assert demand.job_charge(spec) == {"cpu": 2500, builders.GPU: 6, "pods": 4, "jobs": 1}
    assert demand.pod_charge(spec.tasks["Worker"]) == {"cpu": 500, builders.GPU: 2, "pods": 1}


def steps(**waits: str) -> dict[str, Any]:
    """Return tasks. Each argument has the cores of a task and the tasks that it waits for, as in `Master="2
    Prepare=Succeeded"`.
    """
    return {name: _step(*wish.split()) for name, wish in waits.items()}


def _step(cores: str, *upstreams: str) -> dict[str, Any]:
    pairs = [each.split("=") for each in upstreams]
    depends = [{"taskType": name, "phase": phase} for name, phase in pairs]
    return builders.task(template=builders.template(cpu=cores), dependsOn=depends)


CHARGES = [
    ("a task that waits for another to run exists beside it", {"Master": "1", "Worker": "4 Master=Running"}, 5),
    ("tasks one after the other: the largest", {"A": "3", "B": "5 A=Succeeded", "C": "4 B=Succeeded"}, 5),
    ("through a task that runs beside it", {"A": "3", "B": "2 A=Succeeded", "C": "2 B=Running"}, 4),
    ("after one of two tasks: the other may still run", {"A": "3", "B": "2", "C": "4 A=Succeeded"}, 9),
    ("two branches meet", {"A": "3", "B": "2", "C": "4 A=Succeeded B=Succeeded"}, 5),
    ("two branches", {"A": "1", "B": "3 A=Succeeded", "C": "3 A=Succeeded B=Running", "D": "1 C=Succeeded"}, 7),
    ("branches that all overlap", {"A": "1", "B": "2", "C": "4 A=Succeeded", "D": "8 B=Succeeded"}, 15),
]


@pytest.mark.parametrize(("tasks", "cores"), [row[1:] for row in CHARGES], ids=[row[0] for row in CHARGES])
def test_charge_is_the_largest_demand_at_any_time(tasks: dict[str, str], cores: int) -> None:
    spec = torchjob.parse(builders.job(torchTaskSpecs=steps(**tasks))).spec
    assert demand.job_charge(spec) | {"pods": 0} == {"cpu": cores * 1000, "pods": 0, "jobs": 1}


def test_each_resource_is_charged_by_its_largest_stage() -> None:
    tasks = {
        "Prepare": builders.task(template=builders.template(cpu="8", memory="1Gi")),
        "Train": builders.task(
            template=builders.template(cpu="1", **{builders.GPU: 2}),
            dependsOn=[{"taskType": "Prepare", "phase": "Succeeded"}],
        ),
    }
    spec = torchjob.parse(builders.job(torchTaskSpecs=tasks)).spec
    assert demand.job_charge(spec) == {"cpu": 8000, "memory": 2**30, builders.GPU: 2, "pods": 1, "jobs": 1}


def test_pods_without_requests_are_counted() -> None:
    tasks = {
        "Prepare": builders.task(numTasks=7, template=builders.template()),
        "Worker": builders.task(
            numTasks=5,
            spotTaskSpec={"numSpotTasks": 2},
            template=builders.template(),
            dependsOn=[{"taskType": "Prepare", "phase": "Succeeded"}],
        ),
    }
    spec = torchjob.parse(builders.job(torchTaskSpecs=tasks)).spec
    assert demand.job_charge(spec) == {"jobs": 1, "pods": 7}


def test_pod_counts_as_one_pod_despite_its_requests() -> None:
    asks = {"containers": [container({"pods": 0, "count/pods": 7})], "overhead": {"pods": 9}}
    assert demand.pod_demand(asks) == {"pods": 1, "count/pods": 7}


def test_spot_tasks_are_charged() -> None:
    tasks = {"Worker": builders.task(numTasks=3, spotTaskSpec={"numSpotTasks": 2}, template=builders.template(cpu="1"))}
    assert demand.job_charge(torchjob.parse(builders.job(torchTaskSpecs=tasks)).spec)["cpu"] == 3000


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"containers": [{"ports": [{"containerPort": 1}]}]}, set()),
        ({"containers": [{"ports": [{"containerPort": 1, "hostPort": 7}]}]}, {HostPort(7)}),
        ({"hostNetwork": True, "containers": [{"ports": [{"containerPort": 1}]}]}, {HostPort(1)}),
        (
            {
                "containers": [
                    {"ports": [{"containerPort": 1, "hostPort": 7, "protocol": "UDP", "hostIP": "127.0.0.1"}]}
                ]
            },
            {HostPort(7, "UDP", "127.0.0.1")},
        ),
        (
            {
                "containers": [{"name": "c"}],
                "initContainers": [
                    {"ports": [{"containerPort": 1, "hostPort": 8}], "restartPolicy": "Always"},
                    {"ports": [{"containerPort": 1, "hostPort": 9}]},
                ],
            },
            {HostPort(8)},
        ),
    ],
)
def test_host_ports_are_those_of_containers_and_sidecars(spec: dict[str, Any], expected: set[HostPort]) -> None:
    assert demand.host_ports(spec) == expected


def env(**variables: Any) -> dict[str, Any]:
    return {"env": [{"name": name, "value": value} for name, value in variables.items()]}


OURS = {"ports": [{"name": "torchjob-port", "containerPort": 7, "hostPort": 7}, {"containerPort": 8, "hostPort": 8}]}


@pytest.mark.parametrize(
    ("container", "leads", "expected"),
    [
        (env(MASTER_PORT="29500"), True, {29500}),
        (env(PET_MASTER_PORT="29500", MASTER_PORT="29501"), True, {29500, 29501}),
        (env(MASTER_PORT="29500"), False, set()),  # only rank 0 listens
        (env(MASTER_PORT="$(PORT)"), True, set()),
        (env(MASTER_PORT="0"), True, set()),
        (env(MASTER_PORT="65536"), True, set()),
        (env(MASTER_PORT=None), True, set()),
        ({"env": [{"name": "MASTER_PORT", "valueFrom": {}}]}, True, set()),
        (OURS, True, {8}),
        (OURS, False, {7, 8}),
        ({**OURS, **env(MASTER_PORT="9")}, True, {8, 9}),
    ],
)
def test_a_template_chooses_host_ports_and_the_port_of_rank_0(
    container: dict[str, Any], leads: bool, expected: set[int]
) -> None:
    found = demand.chosen_ports({"containers": [{"name": "a"}, container]}, leads=leads)
    assert {port.port for port in found} == expected


@pytest.mark.parametrize(
    ("one", "other", "conflict"),
    [
        (HostPort(7), HostPort(7), True),
        (HostPort(7), HostPort(8), False),
        (HostPort(7), HostPort(7, "UDP"), False),
        (HostPort(7), HostPort(7, "TCP", "127.0.0.1"), True),
        (HostPort(7, "TCP", "10.0.0.1"), HostPort(7, "TCP", "127.0.0.1"), False),
    ],
)
def test_host_ports_conflict_on_the_same_address_or_the_wildcard(
    one: HostPort, other: HostPort, conflict: bool
) -> None:
    assert one.conflicts(other) is conflict
    assert other.conflicts(one) is conflict
