"""Environment variables and commands of containers, rejected pods, and the measured capacity of the machine."""

import os
from pathlib import Path
from typing import Any

import pytest

from embedded import pod as pod_fields
from embedded import pod_requirements
from embedded.node.pods import container_environment
from embedded.node.pods.container_environment import ContainerContext
from embedded.node.resources import machine as node_machine
from embedded.node.resources.machine import Machine
from embedded.pod import LocalPod

MACHINE = {"HOME": "/home/me", "PATH": "/usr/bin", "AWS_SECRET": "x", "LANG": "de_DE.UTF-8"}
ALLOCATABLE = {"cpu": 4000, "memory": 1 << 30}


def place(**given: Any) -> ContainerContext:
    base = container_environment.base_environment(MACHINE, "/venv/bin")
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
    return container_environment.environment(pod(container), container, place(**given))


def container(**given: Any) -> dict[str, Any]:
    return {"name": "c", "command": ["true"], **given}


def test_the_base_environment_keeps_only_harmless_variables() -> None:
    assert container_environment.base_environment(MACHINE, "/venv/bin") == {
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
    assert container_environment.expand(text, {"A": "1", "B": "2"}) == expected


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
    order = container_environment.order(pod(wanted), wanted, place())
    assert order.command == ("run", "1", "--name=1")
    assert order.directory == "/pod"
    submitted = pod(wanted, annotations={"train.distributed.io/submit-directory": "/home/me/work"})
    assert container_environment.order(submitted, wanted, place()).directory == "/home/me/work"
    assert container_environment.order(submitted, wanted | {"workingDir": "/w"}, place()).directory == "/w"


def said(volume: str, path: str) -> dict[str, str]:
    return {"name": f"TORCHQ_VOLUME_{volume.upper()}", "value": path}


@pytest.mark.parametrize(
    ("directory", "expected"),
    [
        ("/work/code", "/pods/code"),
        ("/work/code/", "/pods/code"),
        ("/work/code/src/../lib", "/pods/code/lib"),
        ("/work/code/deep/er", "/pods/deep/er"),
        ("/work/codes", "/work/codes"),
        ("/work/code/../..", "/work/code/../.."),
        ("/work", "/work"),
        ("/work/silent", "/work/silent"),
    ],
)
def test_a_working_folder_below_a_declared_mount_is_in_the_folder_of_its_volume(directory: str, expected: str) -> None:
    mounts = {"code": "/work/code", "deep": "/work/code/deep", "silent": "/work/silent"}
    wanted = container(
        workingDir=directory,
        volumeMounts=[{"name": name, "mountPath": path} for name, path in mounts.items()],
        env=[said(name, path) for name, path in mounts.items() if name != "silent"],
    )
    folders = {name: f"/pods/{name}" for name in mounts}
    assert container_environment.order(pod(wanted), wanted, place(volumes=folders)).directory == expected


def test_the_folder_of_the_python_of_a_pod_is_first_on_path() -> None:
    annotations = {"train.distributed.io/python-folder": "/home/me/venv/bin"}
    wanted = container()
    found = container_environment.environment(pod(wanted, annotations=annotations), wanted, place())
    assert found["PATH"] == "/home/me/venv/bin:/venv/bin:/usr/bin"


@pytest.mark.parametrize("folder", ["venv/bin", "/a:/b"])
def test_a_folder_that_path_cannot_hold_is_refused(folder: str) -> None:
    wanted = container()
    with pytest.raises(ValueError, match="python-folder must be an absolute path"):
        container_environment.order(
            pod(wanted, annotations={"train.distributed.io/python-folder": folder}), wanted, place()
        )


CLAIM = {"claimName": "results"}
OUTPUT_MOUNT = {"name": "torchq-output", "mountPath": "/torchq/output", "subPath": "ns/job-1"}


def test_the_output_of_a_job_is_a_folder_whatever_a_cluster_would_mount() -> None:
    wanted = container(volumeMounts=[OUTPUT_MOUNT], env=[{"name": "TORCHQ_OUTPUT", "value": "/torchq/output"}])
    spec = {"containers": [wanted], "volumes": [{"name": "torchq-output", "persistentVolumeClaim": CLAIM}]}
    assert pod_requirements.refusal(spec, {}, ALLOCATABLE) is None
    found = container_environment.environment(
        pod(wanted), wanted, place(volumes={"torchq-output": "/out"}, output="/out")
    )
    assert found["TORCHQ_OUTPUT"] == "/out"
    assert variables(container(), output="/out")["TORCHQ_OUTPUT"] == "/out"
    assert "TORCHQ_OUTPUT" not in variables(container())


def test_a_part_of_another_volume_is_no_output() -> None:
    wanted = container(volumeMounts=[OUTPUT_MOUNT], env=[{"name": "TORCHQ_OUTPUT", "value": "/torchq/output"}])
    spec = {"containers": [wanted], "volumes": [{"name": "torchq-output", "emptyDir": {}}]}
    verdict = pod_requirements.refusal(spec, {}, ALLOCATABLE)
    assert verdict is not None
    assert "cannot be mounted" in verdict.message


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
        ({"volumes": [{"name": "v", "secret": {"secretName": "s"}}]}, "spec.volumes[0].secret"),
        ({"volumes": [{"name": "v", "persistentVolumeClaim": CLAIM}]}, "spec.volumes[0].persistentVolumeClaim"),
        ({"volumes": [{"name": "torchq-output", "persistentVolumeClaim": CLAIM}]}, None),
        ({"hostNetwork": True, "hostIPC": True, "hostPID": False, "priorityClassName": "gold"}, None),
        ({"hostPID": True}, "spec.hostPID is not supported"),
        ({"priorityClassName": "system-node-critical"}, "spec.priorityClassName: 'system-node-critical' is for parts"),
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


@pytest.mark.servers
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
