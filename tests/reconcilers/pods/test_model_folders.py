"""The folders of models in containers: the variables, and the volumes and mounts of models that the job reads."""

from typing import Any

import pytest

from embedded import pod_requirements
from tests.reconcilers.pods.test_container_files import all_containers, with_init
from tests.reconcilers.pods.test_pod_manifests import environment, make
from tests.support.reconcilers.builders import job

OUTPUT = {"modelOutput": {"modelName": "digits"}}
INPUT = {"modelName": "big-digits", "version": "3f2a1", "path": "team/train-u1/model"}
NAMES = ("TORCHQ_MODEL_PATH", "TORCH_ON_K8S_MODEL_PATH", "KUBEDL_MODEL_PATH")


@pytest.mark.parametrize(
    ("address", "outputs", "is_there"),
    [("service", {"claimName": "results"}, True), ("service", None, False), ("loopback", None, True)],
)
def test_each_container_finds_the_folder_of_its_model_in_the_outputs(
    address: Any, outputs: dict[str, str] | None, is_there: bool
) -> None:
    pod = make(job(with_init(), **OUTPUT, outputs=outputs), master_address=address)["digits-master-0"]
    for container in all_containers(pod):
        names = [each["name"] for each in container["env"]]
        values = {each["value"] for each in container["env"] if each["name"] in NAMES}
        assert values == ({"$(TORCHQ_OUTPUT)/model"} if is_there else set())
        if outputs is not None:
            assert names.index("TORCHQ_OUTPUT") < names.index("TORCHQ_MODEL_PATH"), "a variable refers to earlier ones"


@pytest.mark.parametrize(("claim", "volumes"), [("results", ["torchq-output"]), ("old", ["torchq-output", "old"])])
def test_models_are_mounted_read_only_and_no_claim_is_mounted_twice(claim: str, volumes: list[str]) -> None:
    inputs = [{**INPUT, "claimName": claim}, {**INPUT, "claimName": claim, "modelName": "other"}]
    spec = make(job(with_init(), outputs={"claimName": "results"}, modelInputs=inputs))["digits-master-0"]["spec"]
    assert len(spec["volumes"]) == len(volumes)
    claims = [each["persistentVolumeClaim"]["claimName"] for each in spec["volumes"]]
    assert sorted(claims) == sorted({claim, "results"})
    for container in all_containers({"spec": spec}):
        mounts = {each["mountPath"]: each for each in container["volumeMounts"]}
        mount = mounts["/torchq/models/big-digits"]
        assert (mount["subPath"], mount["readOnly"]) == ("team/train-u1/model", True)
        assert "/torchq/models/other" in mounts
    assert environment({"spec": spec})["TORCHQ_MODEL_INPUT_BIG_DIGITS"] == "/torchq/models/big-digits"


def test_embedded_node_runs_the_pod_of_a_job_that_reads_a_model() -> None:
    tasks = with_init(command=["true"])
    tasks["Master"]["template"]["spec"]["initContainers"][0]["command"] = ["true"]
    pod = make(job(tasks, modelInputs=[INPUT]), master_address="loopback")["digits-master-0"]
    assert list(pod_requirements.problems(pod["spec"])) == []
    (main,) = pod["spec"]["containers"]
    assert pod_requirements.mounts_by_variable(main).keys() == {"TORCHQ_MODEL_INPUT_BIG_DIGITS"}
