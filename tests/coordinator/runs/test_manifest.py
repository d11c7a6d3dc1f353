"""The TorchJob of a run: it is valid, it has the same charge as without the container that unpacks, and it is the same
everywhere.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from coordinator.code import config_maps
from coordinator.code.archive import Archive
from coordinator.code.folder_store import FolderStore
from coordinator.runs import manifest, request
from coordinator.runs.manifest import RunCode
from crds import labels
from crds.torchjob import demand, torchjob
from embedded import pod_requirements
from kube.api import Manifest

ARCHIVE = Archive(b"x" * 1_000_000, "ab" * 32, 3)
CODE = RunCode(ARCHIVE.digest, config_maps.source(ARCHIVE, 1), "print()")
RUN = {"command": ["python", "train.py"], "folder": "/home/me", "namespace": "team", "image": "torch:1"}


def build(code: RunCode | None = CODE, python_folder: str = "", **changes: Any) -> Manifest:
    return manifest.build(request.parse({**RUN, **changes}), "train", code, python_folder)


def pod(job: Manifest, task: str = "Master") -> dict[str, Any]:
    spec: dict[str, Any] = job["spec"]["torchTaskSpecs"][task]["template"]["spec"]
    return spec


@pytest.mark.parametrize(
    "resources",
    [{}, {"gpus": 8}, {"cpus": 1.5}, {"cpus": "100m"}, {"memory": "3Gi"}, {"gpus": 2, "cpus": 4, "memory": "500M"}],
    ids=str,
)
def test_the_container_that_unpacks_does_not_change_the_charge(resources: dict[str, Any]) -> None:
    job = torchjob.parse_submitted(build(nodes=3, **resources))
    bare = torchjob.parse_submitted(build(None, nodes=3, **resources))
    assert job.charge == bare.charge
    spec = pod(build(**resources))
    [unpacker] = spec["initContainers"]
    main = {**spec, "initContainers": []}
    assert demand.pod_demand(spec) == demand.pod_demand(main)
    expected = {name: amount for name, amount in demand.pod_demand(main).items() if name in ("cpu", "memory")}
    assert demand.requests(unpacker) == expected, "with less, the unpacker would be throttled or killed sooner"


@pytest.mark.parametrize("store", ["config maps", "folder"])
def test_an_embedded_node_and_the_checks_of_jobs_accept_the_pods(store: str) -> None:
    source = CODE.source if store == "config maps" else FolderStore(Path("/shared")).source(ARCHIVE)
    job = build(replace(CODE, source=source), nodes=2, gpus=1, cpus=1, memory="1Gi", secret_env={"A": "b/c"})
    torchjob.parse_submitted(job)
    for task in ("Master", "Worker"):
        assert list(pod_requirements.problems(pod(job, task))) == []


def test_each_container_finds_its_volumes_by_variables() -> None:
    spec = pod(build())
    [unpacker], [main] = spec["initContainers"], spec["containers"]
    assert [volume["name"] for volume in spec["volumes"]] == ["torchq-code", "torchq-part-1", "torchq-part-2"]
    assert spec["volumes"][1]["configMap"] == {"name": f"torchq-code-{'ab' * 8}-1"}
    assert {mount["name"]: mount["mountPath"] for mount in unpacker["volumeMounts"]} == {
        "torchq-code": "/torchq/code", "torchq-part-1": "/torchq/parts/1", "torchq-part-2": "/torchq/parts/2"
    }  # fmt: skip
    assert unpacker["env"][2] == {"name": "TORCHQ_VOLUME_TORCHQ_PART_2", "value": "/torchq/parts/2"}
    assert unpacker["command"] == ["python3", "-c", "print()", ARCHIVE.digest]
    assert (main["name"], main["workingDir"], main["command"]) == ("torch", "/torchq/code", ["python", "train.py"])
    assert [mount["name"] for mount in main["volumeMounts"]] == ["torchq-code"]
    assert main["env"] == [
        {"name": "TORCHQ_VOLUME_TORCHQ_CODE", "value": "/torchq/code"},
        {"name": "PYTHONPATH", "value": "$(TORCHQ_VOLUME_TORCHQ_CODE)/.torchq"},
    ]


def test_variables_of_the_user_are_literal_and_their_python_path_comes_first() -> None:
    env = pod(build(env={"A": "$(HOME)", "PYTHONPATH": "src"}, secret_env={"T": "wandb/key"}))["containers"][0]["env"]
    assert env[1:] == [
        {"name": "A", "value": "$$(HOME)"},
        {"name": "PYTHONPATH", "value": "src:$(TORCHQ_VOLUME_TORCHQ_CODE)/.torchq"},
        {"name": "T", "valueFrom": {"secretKeyRef": {"name": "wandb", "key": "key"}}},
    ]


@pytest.mark.parametrize(
    ("command", "mode"),
    [(["torchrun", "a.py"], "Rendezvous"), (["/opt/bin/torchrun", "a.py"], "Rendezvous"),
     (["python", "-m", "torch.distributed.run", "a.py"], "Rendezvous"), (["python", "a.py"], "InPlaceRestart")],
)  # fmt: skip
def test_elastic_workers_meet_as_their_program_can(command: list[str], mode: str) -> None:
    body = build(command=command, nodes="1..3", checkpoint_seconds=60, autoscale=True)
    job = torchjob.parse_submitted(body)
    policy = job.spec.torch_elastic_policy
    assert policy is not None
    assert (policy.num_min_replicas, policy.num_max_replicas, policy.autoscale, policy.mode) == (1, 3, "Idle", mode)
    assert (job.spec.worker_count, job.spec.scheduling_policy.checkpoint_seconds) == (1, 60)
    assert body["spec"]["torchTaskSpecs"].keys() == {"Worker"}


def test_what_is_not_given_is_not_in_the_manifest() -> None:
    job = build(None)
    assert job["spec"].keys() == {"torchTaskSpecs"}
    assert pod(job) == {"containers": [{"name": "torch", "image": "torch:1", "command": ["python", "train.py"]}]}
    assert job["metadata"]["annotations"] == {labels.SUBMIT_DIRECTORY: "/home/me"}
    assert "annotations" not in build()["metadata"]


def test_what_is_given_is_in_the_manifest() -> None:
    job = build(
        python_folder="/venv/bin", queue="team-a", priority=3, labels={"a": "b"}, outputs="claim", ttl_seconds=0
    )
    assert job["metadata"] == {
        "name": "train",
        "namespace": "team",
        "labels": {"a": "b", labels.CODE: "ab" * 8},
        "annotations": {labels.PYTHON_FOLDER: "/venv/bin"},
    }
    assert job["spec"]["schedulingPolicy"] == {"queue": "team-a", "priority": 3}
    assert job["spec"]["outputs"] == {"claimName": "claim"}
    assert job["spec"]["ttlSecondsAfterFinished"] == 0
    torchjob.parse_submitted(job)


@pytest.mark.parametrize("code", [None, CODE])
def test_every_pod_has_the_grace_of_the_run_and_tells_it_to_torchrun(code: RunCode | None) -> None:
    job = build(code, nodes=2, grace="1m30s")
    assert [pod(job, task)["terminationGracePeriodSeconds"] for task in ("Master", "Worker")] == [90, 90]
    assert torchjob.parse_submitted(job).spec.shutdown_timeout("Worker") == 85


def test_roles_become_tasks_with_dependencies() -> None:
    roles = {"Data": {"command": ["a"]}, "Master": {"command": ["b"], "after": "Data:Succeeded", "image": "other"}}
    job = build(command=None, roles=roles)
    assert job["spec"]["torchTaskSpecs"]["Master"]["dependsOn"] == [{"taskType": "Data", "phase": "Succeeded"}]
    assert [pod(job, task)["containers"][0]["image"] for task in roles] == ["torch:1", "other"]
    torchjob.parse_submitted(job)


def test_another_copy_of_the_code_changes_the_names_of_its_volumes_only() -> None:
    job = build(nodes=2)
    other = manifest.with_source(job, config_maps.source(ARCHIVE, 2))
    assert other == build(replace(CODE, source=config_maps.source(ARCHIVE, 2)), nodes=2)
    assert manifest.with_source(job, CODE.source) == job
