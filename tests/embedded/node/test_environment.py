"""Environment variables and commands of containers, rejected pods, and the measured capacity of the machine."""

import os
from pathlib import Path
from typing import Any

import pytest

from embedded import pod as pod_fields
from embedded import pod_requirements
from embedded.node.pods import environment
from embedded.node.pods.environment import ContainerContext
from embedded.node.resources import machine as node_machine
from embedded.node.resources.machine import Machine
from embedded.pod import LocalPod

MACHINE = {"HOME": "/home/me", "PATH": "/usr/bin", "AWS_SECRET": "x", "LANG": "de_DE.UTF-8"}
ALLOCATABLE = {"cpu": 4000, "memory": 1 << 30}


def place(**given: Any) -> ContainerContext:
    base = environment.base_environment(MACHINE, "/venv/bin")
    settings: dict[str, Any] = {
        "volumes": {},
        "message": "/m",
        "folder": "/pod",
        "gpus": (),
        "machine_gpus": False,
        **given,
    }
    return ContainerContext(base=base, allocatable=ALLOCATABLE, **settings)


def pod(*containers: dict[str, Any], **metadata: Any) -> LocalPod:
    own = {"namespace": "ns", "name": "p", "uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z", **metadata}
    return pod_fields.read({"metadata": own, "spec": {"containers": list(containers), "nodeName": "local"}})


def variables(container: dict[str, Any], **given: Any) -> dict[str, str]:
    return environment.environment(pod(container), container, place(**given))


def container(**given: Any) -> dict[str, Any]:
    return {"name": "c", "command": ["true"], **given}


def test_the_base_environment_keeps_only_harmless_variables() -> None:
    assert environment.base_environment(MACHINE, "/venv/bin") == {
        "HOME": "/home/me",
        "LANG": "de_DE.UTF-8",
        "PATH": "/venv/bin:/usr/bin",
    }


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("$(A)", "1"),
        ("$(A)$(B)", "12"),
        ("x$(NOBODY)y", "x$(NOBODY)y"),
        ("$$(A)", "$(A)"),
        ("$$$(A)", "$1"),
        ("$A ${A} $", "$A ${A} $"),
        ("$(A", "$(A"),
        ("$()", "$()"),
    ],
)
def test_expand_replaces_known_references_and_keeps_the_others(text: str, expected: str) -> None:
    assert environment.expand(text, {"A": "1", "B": "2"}) == expected


@pytest.mark.parametrize(
    ("requested", "threads"), [(None, "1"), ("100m", "1"), ("1", "1"), ("1900m", "1"), ("2", "2"), ("16", "16")]
)
def test_omp_num_threads_is_the_number_of_requested_cpus(requested: str | None, threads: str) -> None:
    resources = {"requests": {"cpu": requested}} if requested else {}
    assert variables(container(resources=resources))["OMP_NUM_THREADS"] == threads


def test_variables_of_the_pod_override_all_defaults_except_the_gpus() -> None:
    own = {"OMP_NUM_THREADS": "7", "GLOO_SOCKET_IFNAME": "eth0", "PATH": "/bin", "CUDA_VISIBLE_DEVICES": "0"}
    found = variables(container(env=[{"name": n, "value": v} for n, v in own.items()]), gpus=("2", "3"))
    assert found["OMP_NUM_THREADS"] == "7"
    assert found["GLOO_SOCKET_IFNAME"] == "eth0"
    assert found["PATH"] == "/bin"
    assert found["CUDA_VISIBLE_DEVICES"] == "2,3"


def test_a_container_without_gpus_sees_none_of_the_machine() -> None:
    assert variables(container(), machine_gpus=True)["CUDA_VISIBLE_DEVICES"] == ""
    assert "CUDA_VISIBLE_DEVICES" not in variables(container())


def test_each_volume_has_a_variable_with_its_path() -> None:
    assert variables(container(), volumes={"my-data": "/x"})["TORCHQ_VOLUME_MY_DATA"] == "/x"


@pytest.mark.parametrize(
    ("reference", "expected"),
    [
        ({"resource": "requests.cpu"}, "2"),
        ({"resource": "requests.cpu", "divisor": "1m"}, "1500"),
        ({"resource": "limits.cpu"}, "4"),
        ({"resource": "limits.memory", "divisor": "1Mi"}, "1024"),
        ({"resource": "requests.memory"}, "1000"),
    ],
)
def test_resource_references_use_requests_limits_and_the_divisor(reference: dict[str, Any], expected: str) -> None:
    wanted = container(
        resources={"requests": {"cpu": "1500m", "memory": "1000"}},
        env=[{"name": "X", "valueFrom": {"resourceFieldRef": reference}}],
    )
    assert variables(wanted)["X"] == expected


def test_order_expands_the_command_and_chooses_the_working_directory() -> None:
    wanted = container(command=["run", "$(A)"], args=["--name=$(A)"], env=[{"name": "A", "value": "1"}])
    order = environment.order(pod(wanted), wanted, place())
    assert order.command == ("run", "1", "--name=1")
    assert order.directory == "/pod"
    submitted = pod(wanted, annotations={"train.distributed.io/submit-directory": "/home/me/work"})
    assert environment.order(submitted, wanted, place()).directory == "/home/me/work"
    assert environment.order(submitted, wanted | {"workingDir": "/w"}, place()).directory == "/w"


MOUNT = {"name": "v", "mountPath": "/data"}


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({}, None),
        ({"volumes": [{"name": "v", "emptyDir": {}}]}, None),
        ({"volumes": [{"name": "v"}], "containers": [container(volumeMounts=[MOUNT])]}, "TORCHQ_VOLUME_V"),
        (
            {
                "volumes": [{"name": "v", "hostPath": {"path": "/data"}}],
                "containers": [container(volumeMounts=[MOUNT])],
            },
            None,
        ),
        (
            {"volumes": [{"name": "v", "hostPath": {"path": "/x"}}], "containers": [container(volumeMounts=[MOUNT])]},
            "'/data' cannot be mounted",
        ),
        ({"containers": [container(volumeMounts=[MOUNT])]}, "there is no volume 'v'"),
        ({"volumes": [{"name": "v", "configMap": {"name": "m"}}]}, "spec.volumes[0].configMap"),
        ({"initContainers": [container(restartPolicy="Always")]}, "spec.initContainers[0].restartPolicy"),
        ({"containers": [container(command=[])]}, "spec.containers[0].command is required"),
        ({"containers": [container(envFrom=[{"secretRef": {"name": "s"}}])]}, "envFrom[0]: secretRef"),
        ({"containers": [container(readinessProbe={"exec": {}})]}, "readinessProbe"),
        (
            {"containers": [container(env=[{"name": "X", "valueFrom": {"fieldRef": {"fieldPath": "spec.x"}}}])]},
            "'spec.x'",
        ),
    ],
)
def test_a_pod_with_an_unsupported_field_is_rejected(spec: dict[str, Any], words: str | None) -> None:
    verdict = pod_requirements.refusal({"containers": [container()], **spec}, {}, ALLOCATABLE)
    assert (verdict is None) if words is None else (verdict is not None and words in verdict.message)


def test_a_pod_larger_than_the_node_is_rejected() -> None:
    verdict = pod_requirements.refusal({"containers": [container()]}, {"nvidia.com/gpu": 1}, ALLOCATABLE)
    assert verdict is not None
    assert verdict.reason == "OutOfnvidia.com/gpu"


def test_measure_reports_at_most_what_the_machine_has(tmp_path: Path) -> None:
    machine = node_machine.measure(tmp_path, {})
    assert 0 < machine.cpu <= (os.cpu_count() or 0) * 1000
    assert 0 < machine.memory <= os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert machine.amounts["cpu"] == machine.cpu


def test_options_override_the_measured_capacity() -> None:
    machine = Machine(2000, 1 << 30, ("0",))
    assert node_machine.override(machine) == machine
    assert node_machine.override(machine, "2500m", "8Gi", 2) == Machine(2500, 8 << 30, ("0", "1"))
    assert node_machine.override(machine, gpus=0).gpus == ()
    with pytest.raises(ValueError, match="'lots'"):
        node_machine.override(machine, memory="lots")
